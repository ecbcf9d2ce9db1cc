//! Numbers of registers.

use crate::mlx5::firmware::numbers;

/// Which register ACCESS_REG means. Any number is a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct RegisterId(pub u16);

// Linux include/linux/mlx5/driver.h `MLX5_REG_*`.
numbers! { RegisterId, "MLX5_REG_":
    QPTS = 0x4002, "QPTS";
    QETCR = 0x4005, "QETCR";
    QTCT = 0x400a, "QTCT";
    QPDPM = 0x4013, "QPDPM";
    QCAM = 0x4019, "QCAM";
    DCBX_PARAM = 0x4020, "DCBX_PARAM";
    DCBX_APP = 0x4021, "DCBX_APP";
    FPGA_CAP = 0x4022, "FPGA_CAP";
    FPGA_CTRL = 0x4023, "FPGA_CTRL";
    FPGA_ACCESS_REG = 0x4024, "FPGA_ACCESS_REG";
    CORE_DUMP = 0x402e, "CORE_DUMP";
    PCAP = 0x5001, "PCAP";
    PMLP = 0x5002, "PMLP";
    PMTU = 0x5003, "PMTU";
    PTYS = 0x5004, "PTYS";
    PAOS = 0x5006, "PAOS";
    PFCC = 0x5007, "PFCC";
    PPCNT = 0x5008, "PPCNT";
    PUDE = 0x5009, "PUDE";
    PPTB = 0x500b, "PPTB";
    PBMC = 0x500c, "PBMC";
    PELC = 0x500e, "PELC";
    PVLC = 0x500f, "PVLC";
    PMPE = 0x5010, "PMPE";
    PMAOS = 0x5012, "PMAOS";
    PPLM = 0x5023, "PPLM";
    PDDR = 0x5031, "PDDR";
    PCMR = 0x5041, "PCMR";
    PCAM = 0x507f, "PCAM";
    NODE_DESC = 0x6001, "NODE_DESC";
    HOST_ENDIANNESS = 0x7004, "HOST_ENDIANNESS";
    MTCAP = 0x9009, "MTCAP";
    MTMP = 0x900a, "MTMP";
    MCIA = 0x9014, "MCIA";
    MFRL = 0x9028, "MFRL";
    MLCR = 0x902b, "MLCR";
    MRTC = 0x902d, "MRTC";
    MTRC_CAP = 0x9040, "MTRC_CAP";
    MTRC_CONF = 0x9041, "MTRC_CONF";
    MTRC_STDB = 0x9042, "MTRC_STDB";
    MTRC_CTRL = 0x9043, "MTRC_CTRL";
    MPEIN = 0x9050, "MPEIN";
    MPCNT = 0x9051, "MPCNT";
    MTPPS = 0x9053, "MTPPS";
    MTPPSE = 0x9054, "MTPPSE";
    MTUTC = 0x9055, "MTUTC";
    MPEGC = 0x9056, "MPEGC";
    MPIR = 0x9059, "MPIR";
    MCQS = 0x9060, "MCQS";
    MCQI = 0x9061, "MCQI";
    MCC = 0x9062, "MCC";
    MCDA = 0x9063, "MCDA";
    MCAM = 0x907f, "MCAM";
    MSECQ = 0x9155, "MSECQ";
    MSEES = 0x9156, "MSEES";
    MIRC = 0x9162, "MIRC";
    MTPTM = 0x9180, "MTPTM";
    MTCTR = 0x9181, "MTCTR";
    SBPR = 0xb001, "SBPR";
    SBCM = 0xb002, "SBCM";
    SBCAM = 0xb01f, "SBCAM";
    RESOURCE_DUMP = 0xc000, "RESOURCE_DUMP";
    DTOR = 0xc00e, "DTOR";
}
