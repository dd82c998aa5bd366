//! Every error from its type: what the row of an attempt says of each way in which the layers and
//! clients beneath fail, over real sockets, one test a row. The rows are exact, so that a dependency
//! that changes what its errors hold fails one of them.

mod chains;
mod http1;
mod http2;
mod pool;
mod reqwest_client;
mod rig;
mod servers;
mod tls;
mod tower_layers;
