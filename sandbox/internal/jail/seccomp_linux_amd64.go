package jail

import "golang.org/x/sys/unix"

const (
	auditArch        = unix.AUDIT_ARCH_X86_64
	firstForeignCall = 0x40000000 // x32
)

var (
	deniedHere    = []uintptr{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS}
	pretendedHere = []uintptr{unix.SYS_CHOWN, unix.SYS_LCHOWN}
)
