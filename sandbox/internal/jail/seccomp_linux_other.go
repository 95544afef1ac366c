//go:build linux && !amd64 && !arm64

package jail

const (
	auditArch        = 0 // installFilter refuses
	firstForeignCall = 0x40000000
)

var allowed, allowedHere, denied, deniedHere, deniedOutside, pretended, pretendedHere []uintptr
