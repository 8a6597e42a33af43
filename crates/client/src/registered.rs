//! The registered parameters of a mount, which are removed when it is unmounted.

use std::sync::Weak;

use sheen_layout::MDT_OST;
use sheen_params::Params;

use crate::{lov::Lov, osc::Osc};

/// The registered parameters and devices of a mount. Dropping it removes all of them.
pub struct Registered {
    pub(crate) params: Params,
    /// The OSTs, whose parameters are registered when they are added.
    pub(crate) lov: Weak<Lov>,
    pub(crate) names: Vec<String>,
    pub(crate) devices: Vec<String>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| self.params.unregister(name));
        self.devices.iter().for_each(|device| self.params.remove_device(device));
        for ost in self.lov.upgrade().map(|lov| lov.all()).unwrap_or_default() {
            unregister_osc(&self.params, &ost.osc);
        }
    }
}

/// Unregisters the parameters and the device of an OSC.
pub(crate) fn unregister_osc(params: &Params, osc: &Osc) {
    params.unregister(&osc_dir(osc));
    params.unregister(&format!("ldlm.namespaces.{}", osc.name()));
    params.remove_device(osc.name());
}

/// Returns the parameter directory of an OSC. `osc.*` are the OSTs. The MDT's data service has a
/// directory of its own, and is not a device.
pub(crate) fn osc_dir(osc: &Osc) -> String {
    let kind = if osc.index() == MDT_OST { "dom" } else { "osc" };
    format!("{kind}.{}", osc.name())
}
