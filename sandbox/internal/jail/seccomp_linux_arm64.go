package jail

import "golang.org/x/sys/unix"

const (
	auditArch        = unix.AUDIT_ARCH_AARCH64
	firstForeignCall = 0x40000000 // no arm64 call has such a number
)

// arm64 has neither the port calls of x86 nor the older forms of calls.
var allowedHere, deniedHere, pretendedHere []uintptr
