//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
)

// Sandbox cannot be made on this system.
type Sandbox struct{}

// New answers ErrUnsupported.
func New(context.Context, Spec) (*Sandbox, error) { return nil, ErrUnsupported }

// CallFolder is where the command under-test would be.
const CallFolder = "/run/under-test"

// Link cannot be had on this system.
type Link struct{}

// NewLink answers ErrUnsupported.
func NewLink() (*Link, error) { return nil, ErrUnsupported }

// Close does nothing.
func (*Link) Close() error { return nil }

// Snapshots cannot be used on this system.
type Snapshots struct{}

// Snapshot cannot be used on this system.
type Snapshot struct{}

// OpenSnapshots answers nil: what needs a sandbox will say that there are none.
func OpenSnapshots(string, Role, int64) (*Snapshots, error) { return nil, nil }

// Use answers ErrUnsupported.
func (*Snapshots) Use(context.Context, string, Fetch) (*Snapshot, error) {
	return nil, ErrUnsupported
}

// Release does nothing.
func (*Snapshot) Release() {}

func probe(context.Context) (Report, error) { return Report{Isolation: "none"}, ErrUnsupported }

// Toolchain answers ErrUnsupported.
func Toolchain(context.Context, string, string) ([]Mount, map[string]string, error) {
	return nil, nil, ErrUnsupported
}

// GoModules answers ErrUnsupported.
func GoModules(context.Context, string, string, Fetch) (Mount, map[string]string, error) {
	return Mount{}, nil, ErrUnsupported
}

// NodePackages answers ErrUnsupported.
func NodePackages(context.Context, string, string, string, Fetch) ([]Mount, error) {
	return nil, ErrUnsupported
}

// HasToolchain answers ErrUnsupported.
func HasToolchain(context.Context, string) error { return ErrUnsupported }

// HasEngine answers ErrUnsupported.
func HasEngine(context.Context) error { return ErrUnsupported }

// OpenImage answers ErrUnsupported.
func OpenImage(context.Context, string, string, string) (Image, error) {
	return Image{}, ErrUnsupported
}

// OpenBuiltImage answers ErrUnsupported.
func OpenBuiltImage(context.Context, string, string, string) (Image, error) {
	return Image{}, ErrUnsupported
}

// BuildImage answers ErrUnsupported.
func BuildImage(context.Context, string, string, fs.FS) (bool, error) { return false, ErrUnsupported }

// ErrNoRoom is never answered.
var ErrNoRoom = errors.New("no room for a sandbox's disk")

// CheckDisk answers ErrUnsupported.
func CheckDisk(string, int64) error { return ErrUnsupported }

// Exec answers ErrUnsupported.
func (*Sandbox) Exec(context.Context, Command) (Result, error) { return Result{}, ErrUnsupported }

// Terminal cannot be had on this system.
type Terminal struct{}

// Terminal answers ErrUnsupported.
func (*Sandbox) Terminal(context.Context, Command, int, int) (*Terminal, error) {
	return nil, ErrUnsupported
}

// Read answers ErrUnsupported.
func (*Terminal) Read([]byte) (int, error) { return 0, ErrUnsupported }

// Write answers ErrUnsupported.
func (*Terminal) Write([]byte) (int, error) { return 0, ErrUnsupported }

// Resize answers ErrUnsupported.
func (*Terminal) Resize(int, int) error { return ErrUnsupported }

// ExitCode is 0.
func (*Terminal) ExitCode() int { return 0 }

// Pipes cannot be had on this system.
type Pipes struct{}

// Pipes answers ErrUnsupported.
func (*Sandbox) Pipes(context.Context, Command) (*Pipes, error) { return nil, ErrUnsupported }

// Read answers ErrUnsupported.
func (*Pipes) Read([]byte) (int, error) { return 0, ErrUnsupported }

// Write answers ErrUnsupported.
func (*Pipes) Write([]byte) (int, error) { return 0, ErrUnsupported }

// ExitCode is 0.
func (*Pipes) ExitCode() int { return 0 }

// Complaint is nothing.
func (*Pipes) Complaint() []byte { return nil }

// Close does nothing.
func (*Pipes) Close() error { return nil }

// ReadFile answers ErrUnsupported.
func (*Sandbox) ReadFile(context.Context, string, int64) ([]byte, error) { return nil, ErrUnsupported }

// Stat answers ErrUnsupported.
func (*Sandbox) Stat(context.Context, string) (FileState, error) { return FileState{}, ErrUnsupported }

// WriteFile answers ErrUnsupported.
func (*Sandbox) WriteFile(context.Context, string, []byte, fs.FileMode) error { return ErrUnsupported }

// List answers ErrUnsupported.
func (*Sandbox) List(context.Context, string) ([]string, bool, error) {
	return nil, false, ErrUnsupported
}

// Grep answers ErrUnsupported.
func (*Sandbox) Grep(context.Context, string, Grep) ([]byte, error) { return nil, ErrUnsupported }

// Glob answers ErrUnsupported.
func (*Sandbox) Glob(context.Context, string, string, int) ([]string, bool, error) {
	return nil, false, ErrUnsupported
}

// Remove answers ErrUnsupported.
func (*Sandbox) Remove(context.Context, string) error { return ErrUnsupported }

// Env is empty.
func (*Sandbox) Env() map[string]string { return nil }

// Unpack answers ErrUnsupported.
func (*Sandbox) Unpack(context.Context, string, []byte) error { return ErrUnsupported }

// UnpackFrom answers ErrUnsupported.
func (*Sandbox) UnpackFrom(context.Context, string, Source) error { return ErrUnsupported }

// SetBase answers ErrUnsupported.
func (*Sandbox) SetBase(context.Context) error { return ErrUnsupported }

// Changes answers ErrUnsupported.
func (*Sandbox) Changes(context.Context) ([]byte, error) { return nil, ErrUnsupported }

// ChangesTo answers ErrUnsupported.
func (*Sandbox) ChangesTo(context.Context, io.Writer) (ChangeFound, error) {
	return ChangeFound{}, ErrUnsupported
}

// Apply answers ErrUnsupported.
func (*Sandbox) Apply(context.Context, []byte) error { return ErrUnsupported }

// ApplyFrom answers ErrUnsupported.
func (*Sandbox) ApplyFrom(context.Context, Source) error { return ErrUnsupported }

// KillAll answers ErrUnsupported.
func (*Sandbox) KillAll(context.Context) error { return ErrUnsupported }

// Workdir is empty.
func (*Sandbox) Workdir() string { return "" }

// Isolation is IsolationNone.
func (*Sandbox) Isolation() string { return IsolationNone }

// ProxyListener is nil.
func (*Sandbox) ProxyListener() net.Listener { return nil }

// MemoryBytes is 0.
func (*Sandbox) MemoryBytes() int64 { return 0 }

// User is UserShared.
func (*Sandbox) User() string { return UserShared }

// Cgroup is "none".
func (*Sandbox) Cgroup() string { return "none" }

// FSMode is empty.
func (*Sandbox) FSMode() string { return "" }

// OnDisk is false.
func (*Sandbox) OnDisk() bool { return false }

// Close does nothing.
func (*Sandbox) Close() error { return nil }
