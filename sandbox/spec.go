// Package sandbox runs untrusted programs in a place of their own: new user, mount, process,
// network, ipc and uts namespaces, a fresh root with read-only views of the host's system folders,
// no network but its own loopback, no capabilities, a system call filter, and limits on memory,
// processes, disk, output and time.
//
// A Sandbox lasts as long as its work, a rollout for example. Its first process is
// rondo-sandbox-init, or this program started again; it answers requests over an inherited socket.
// The sandbox dies with its owner, however the owner dies.
//
// Linux 5.14 or newer on amd64 or arm64 is needed, as root or as an ordinary user. Other systems
// build and answer ErrUnsupported. Where the kernel refuses namespaces there are weaker levels for
// who accepts them; see Isolations.
//
// It is a library: with the packages below it, it needs nothing of the plane. Begin with
// New and Sandbox.Exec, then:
//
//   - Package tools runs the tool calls of a model in a sandbox, of the sets and servers that
//     package toolset describes; package toolserver asks servers.
//   - Package verifier runs the tests of a task over what an agent left, and package
//     grade grades their report.
//   - Package fault says whether a failure is the doing of what ran inside or of the machine.
//   - Package egress is the proxy to the hosts and registries that package netaccess names.
//
// Large because all of it is one type: starting its first process, the limits and mounts that it
// gets, and what it is asked for afterwards.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/sandbox/internal/archive"
	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// Default limits.
const (
	DefaultMemoryBytes = 512 << 20
	DefaultDiskBytes   = 256 << 20
	DefaultPIDs        = 128
	DefaultWall        = 60 * time.Second
	DefaultOutputBytes = 64 << 10
	DefaultWorkdir     = "/app"
	DefaultPath        = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Bounds of archives: entries, contents before compression, bytes of an archive in memory,
// bytes of a change in memory.
const (
	MaxFiles   = archive.MaxFiles
	MaxBytes   = archive.MaxBytes
	MaxArchive = archive.MaxArchive
	MaxChange  = archive.MaxChange
)

var (
	// ErrUnsupported says that this system cannot hold sandboxes at all.
	ErrUnsupported = errors.New("sandboxes need Linux")
	// ErrClosed says that the sandbox is closed, or that its first process is gone.
	ErrClosed = errors.New("sandbox is closed")
	// ErrOutOfMemory says that what ran inside used up the memory, and the sandbox ended with it.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrTooLarge says that a file, a workspace or its change exceeds a limit. It is the
	// doing of what ran inside.
	ErrTooLarge = wire.ErrTooLarge
	// ErrInvalid says that an archive or a request was refused for what it asks.
	ErrInvalid = wire.ErrInvalid
	// ErrSource says that an archive cannot be read from where it is. It is not the
	// doing of what runs inside.
	ErrSource = archive.ErrSource
	// ErrLink says that a sandbox cannot have a Link, as it has no namespaces.
	ErrLink = errors.New("only sandboxes with namespaces can run each other's commands")
	// ErrProxy says that a sandbox cannot have a Proxy, as it has no network of its own.
	ErrProxy = errors.New("only sandboxes with namespaces can have a way to the network")
)

// Limits bound what runs in a sandbox. The zero value of a field stands for its default.
type Limits struct {
	// MemoryBytes bounds the memory of all processes together (512 MiB), with page tables, shared
	// memory and what is in pipes and sockets. What is on disk, where that is in memory too, is on
	// top. Without control groups it is looked at every 100 ms, and memfd_create is refused; the
	// kernel's other objects, such as mappings and timers, are then not counted.
	MemoryBytes int64
	// DiskBytes bounds all that is written: workspace, /tmp, home (256 MiB).
	DiskBytes int64
	// PIDs bounds processes and threads (128).
	PIDs int
	// Wall bounds one command (60 s).
	Wall time.Duration
	// CPUs is the quota in cores: 0.5 is half of one. 0 means unlimited. Without control
	// groups it has no effect.
	CPUs float64
	// OutputBytes bounds what is kept of each of a command's two streams, half of it the start
	// and half the end (64 KiB).
	OutputBytes int
}

func (l Limits) withDefaults() Limits {
	l.MemoryBytes = cmp.Or(l.MemoryBytes, DefaultMemoryBytes)
	l.DiskBytes = cmp.Or(l.DiskBytes, DefaultDiskBytes)
	l.PIDs = cmp.Or(l.PIDs, DefaultPIDs)
	l.Wall = cmp.Or(l.Wall, DefaultWall)
	l.OutputBytes = cmp.Or(l.OutputBytes, DefaultOutputBytes)
	return l
}

func (l Limits) validate() error {
	switch {
	case l.MemoryBytes < 16<<20:
		return fmt.Errorf("memory limit of %d bytes: at least 16 MiB are needed", l.MemoryBytes)
	case l.DiskBytes < 1<<20:
		return fmt.Errorf("disk limit of %d bytes: at least 1 MiB is needed", l.DiskBytes)
	case l.PIDs < 1 || l.PIDs > 1<<15:
		return fmt.Errorf("limit of %d processes: 1 to %d are possible", l.PIDs, 1<<15)
	case l.Wall < time.Millisecond || l.Wall > 24*time.Hour:
		return fmt.Errorf("wall limit of %v: 1 ms to 24 h are possible", l.Wall)
	case !(l.CPUs == 0 || l.CPUs >= 0.01 && l.CPUs <= 1024):
		return fmt.Errorf("limit of %g processors: 0.01 to 1024 are possible", l.CPUs)
	case l.OutputBytes < 2 || l.OutputBytes > 64<<20:
		return fmt.Errorf("output limit of %d bytes: 2 bytes to 64 MiB are possible", l.OutputBytes)
	}
	return nil
}

// Mount shows a file or folder of the host in the sandbox, read-only. With Overlay, a folder can be
// written to and the changes are the sandbox's own, on its disk.
type Mount struct {
	Source, Target string
	Overlay        bool
}

// ProxyAddress is where a sandbox's programs reach the proxy of Spec.Proxy, if it has one.
var ProxyAddress = netip.AddrPortFrom(netip.AddrFrom4(wire.ProxyHost), wire.ProxyPort).String()

// Role is what a sandbox is for. Sandboxes of different roles are different users to the host,
// where their owner is root and so has a choice.
type Role int

// The roles.
const (
	RoleAgent     Role = iota // and whatever else is none of the others
	RoleVerifier              // runs a task's tests
	RoleUnderTest             // runs the code under test, where that is apart from the tests
)

// SnapshotBytes is what a service's unpacked snapshots may take on the disk beside those in use.
const SnapshotBytes = 8 << 30

// Users that a sandbox's processes can be to the host; see Sandbox.User.
const (
	UserOwn    = "own"
	UserShared = "shared" // the owner's, with all that it runs
)

// Spec describes a sandbox.
type Spec struct {
	// Name is in errors and is the host name: "g000123-4".
	Name string
	Role Role
	// Workdir is the workspace, an absolute path inside ("/app"). It starts empty, or with
	// Snapshot, which is the base of Changes then.
	Workdir  string
	Snapshot *Snapshot
	// Root is a folder of the host whose tree is seen in the place of the host's system folders,
	// read-only but for /root: that of a container image (see OpenImage). Empty: the host's own.
	Root   string
	Mounts []Mount
	// ReadOnly holds archives (see Pack) by the absolute path at which their contents stand,
	// unchangeable for all inside.
	ReadOnly map[string][]byte
	// Env is added to the environment of every command.
	Env    map[string]string
	Limits Limits
	// Disk is a folder of the host on whose disk lies all that is written; "" keeps it in memory.
	// Limits.DiskBytes are reserved there, or New answers ErrNoRoom. It takes namespaces, the
	// host's root and loop devices: see CheckDisk.
	Disk string
	// Calls gives the sandbox's programs the command under-test, in CallFolder: it runs commands in
	// the sandbox that Serves the same link.
	Calls *Link
	// Serves lets the sandbox run the commands of another one.
	Serves *Served
	// Proxy lets the sandbox's programs connect to ProxyAddress, where the owner answers (see
	// Sandbox.ProxyListener). It is the only way out of the sandbox's network, and goes to no
	// address of the host. A sandbox with Calls or Serves has none.
	Proxy bool
	// AllowInsecure lets New give whatever level of isolation the kernel allows, down to none:
	// Sandbox.Isolation says what it became.
	AllowInsecure bool
	// MinIsolation is the weakest level that New may give, with AllowInsecure or without;
	// IsolationNamespaces by default.
	MinIsolation string
}

// Served is what a sandbox needs to run the commands of another one.
type Served struct {
	Link *Link
	// Env is added to the sandbox's own environment for each command.
	Env map[string]string
	// Withheld is the environment in which the other sandbox's programs start: a variable that
	// still has this value there is not taken over. One that was set there since is, but for those
	// that mean a sandbox's own folders and programs, such as PATH and HOME.
	Withheld map[string]string
}

func (s Spec) withDefaults() Spec {
	s.Name = cmp.Or(s.Name, "sandbox")
	s.Workdir = path.Clean(cmp.Or(s.Workdir, DefaultWorkdir))
	s.Limits = s.Limits.withDefaults()
	return s
}

// inMemory are the limits of what the sandbox has in memory.
func (s Spec) inMemory() Limits {
	limits := s.Limits
	if s.Disk != "" {
		limits.DiskBytes = 0
	}
	return limits
}

// writable are the sandbox's own folders that can also be the workspace.
var writable = []string{"/root", "/tmp"}

// reserved are folders that a sandbox makes itself and nothing may be put in the place of.
var reserved = []string{"/", "/proc", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/tmp", "/var/tmp",
	"/root", "/run", "/logs", "/dev/shm"}

func (s Spec) validate() error {
	if err := errors.Join(s.Limits.validate(), validIsolation(s.MinIsolation)); err != nil {
		return err
	}
	if s.Proxy && (s.Calls != nil || s.Serves != nil) {
		return errors.New("a sandbox with a link can have no proxy")
	}
	if s.Disk != "" && !path.IsAbs(s.Disk) {
		return fmt.Errorf("disk %q: an absolute path is needed", s.Disk)
	}
	if s.Root != "" && !path.IsAbs(s.Root) {
		return fmt.Errorf("root %q: an absolute path is needed", s.Root)
	}
	targets := []string{s.Workdir}
	for _, mount := range s.Mounts {
		if !path.IsAbs(mount.Source) {
			return fmt.Errorf("mount source %q: an absolute path is needed", mount.Source)
		}
		targets = append(targets, mount.Target)
	}
	for target := range s.ReadOnly {
		targets = append(targets, target)
	}
	seen := map[string]bool{}
	for _, target := range targets {
		if err := validTarget(target); err != nil && !(target == s.Workdir && slices.Contains(writable, target)) {
			return err
		}
		if seen[target] {
			return fmt.Errorf("path %q inside is used twice", target)
		}
		seen[target] = true
	}
	return nil
}

func validTarget(target string) error {
	if !path.IsAbs(target) || path.Clean(target) != target || len(target) > 1024 ||
		strings.ContainsAny(target, "\x00\n") {
		return fmt.Errorf("path %q inside: a clean absolute path is needed", target)
	}
	if slices.Contains(reserved, target) {
		return fmt.Errorf("path %q inside is one of the sandbox's own", target)
	}
	for _, folder := range []string{"/proc/", "/dev/", "/etc/", "/logs/"} {
		if strings.HasPrefix(target, folder) {
			return fmt.Errorf("path %q is in one of the sandbox's own folders", target)
		}
	}
	return nil
}

// Image is a container image, whose tree a sandbox can have in the place of
// the host's system folders.
type Image struct {
	ID      string // "sha256:" and 64 hex digits
	Root    string // the folder of its tree, for Spec.Root
	Workdir string // "" for none
	Env     map[string]string
}

// Command is one program to run.
type Command struct {
	Argv  []string
	Dir   string // the workspace by default
	Env   map[string]string
	Stdin []byte
	// Wall bounds how long the command runs; 0 is the sandbox's limit. Time in which the machine
	// has no processor for it does not count, up to three times as much.
	Wall time.Duration
	// Stdout and Stderr take the output as it comes, up to the sandbox's limit for each; the Result
	// holds none then. While one of them blocks the sandbox answers nothing, and one that fails
	// ends the command. Of a background command there is no output.
	Stdout, Stderr io.Writer
	// Background lets Exec return at once and the command run until the sandbox is closed. Its
	// output goes to Result.Log.
	Background bool
	// Stop ends the command, as its limits do, when it is closed; nil never is.
	Stop <-chan struct{}
	// Channel gives the command a stream socket as descriptor ChannelFD; Result.Sent is what was
	// written to it. A background command has none.
	Channel *Channel
}

// ChannelFD is the descriptor of Command.Channel. It is no path: only what was
// started with it can use it.
const ChannelFD = wire.ReportFD

// Channel leads from a command to its owner.
type Channel struct {
	Greeting string // can be read from the descriptor from the start; at most 64 KiB
	MaxBytes int    // how much is kept of what is written
}

// Result is how a command ended.
type Result struct {
	// ExitCode is the program's, 128 + n where signal n ended it, 127 where it was not found, 126
	// where it could not be started.
	ExitCode       int
	Stdout, Stderr []byte
	// DroppedBytes is how much of the output exceeded the limit; a line stands where it is missing.
	DroppedBytes int64
	// Sent is what was written to ChannelFD, SentDropped how many bytes of it exceeded the limit.
	Sent        []byte
	SentDropped int64
	Signaled    bool // a signal ended it
	TimedOut    bool
	Stopped     bool // by Command.Stop
	OutOfMemory bool
	// OutputExceeded says that the command was killed for writing more than a
	// thousand times its limit.
	OutputExceeded bool
	// Duration is how long the command took, and Starved how much of that the machine had no
	// processor for it, which its limit did not count.
	Duration, Starved time.Duration
	// Detached is the last time at which a process was seen that the command had detached
	// from itself or left behind; zero if there was none. Until then, code that the
	// command ran could still act.
	Detached time.Time
	// Leftovers is how many processes the command left running, which were killed.
	Leftovers int
	// PID and Log belong to a background command: its process number and the file
	// inside that takes its output.
	PID int
	Log string
}

// FileState is what Stat tells of a file, or of a link itself.
type FileState struct {
	Size         int64
	Mode         fs.FileMode
	Links, Inode uint64
	// Changed is the last change of content, mode or place, to the kernel's clock tick.
	// Nothing inside can set it.
	Changed time.Time
}

// Grep is a search for an RE2 pattern; see Sandbox.Grep.
type Grep struct {
	Pattern string
	// Label is what the searched path is called in the output, by default nothing, so that
	// names are relative to it.
	Label string
	// Glob and Type choose files: "*.go" or "src/**/*.{ts,tsx}"; "go", "py", "js" and so on.
	Glob, Type string
	// Mode is "content" (the default), "files_with_matches" or "count".
	Mode          string
	Before, After int // context lines
	IgnoreCase    bool
	Multiline     bool
	// HeadLimit bounds the matches, or files, shown (200).
	HeadLimit int
}

// Report tells what kind of sandbox this system gives.
type Report struct {
	Isolation  string // one of Isolations
	Filesystem string // as Sandbox.FSMode, of workspaces that begin with a snapshot
	Cgroup     string // as Sandbox.Cgroup
	// SharedInodes are as Sandbox.SharedInodes.
	SharedInodes []string
	// FirstProcess is the program that sandboxes have as their first process: rondo-sandbox-init,
	// or this one where that cannot be used, with why.
	FirstProcess string
	Detail       string // why not more, and what to do about it
}

// Pack writes a tree as a snapshot: a zstd-compressed tar with sorted names, constant times and
// owners, and permissions reduced to 0755 (executable, or starting with "#!") and 0644. The same
// tree always gives the same bytes. Devices, sockets, pipes, and links that leave the tree are
// refused, as are more than MaxFiles entries, MaxBytes of content or MaxArchive in all.
func Pack(fsys fs.FS) ([]byte, error) { return archive.Pack(fsys) }

// Probe really runs a program in a sandbox and reports what kind of sandbox that was. Its error
// says what was refused and what to do.
func Probe(ctx context.Context) (Report, error) { return probe(ctx) }
