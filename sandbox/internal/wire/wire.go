// Package wire is the protocol between a sandbox's owner and the init process inside:
// length-prefixed frames over one stream socket, each a JSON header and a body of raw bytes.
// Requests carry an id and are answered in any order.
//
// The owner reads answers from a process that lives next to untrusted code, so it states for each
// frame how much it accepts.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// MaxHeader bounds the JSON part of a frame: the longest command line that Linux accepts fits.
const MaxHeader = 4 << 20

// MaxChunk bounds the body of one answer of a stream, and MaxPiece that of an OpPiece, in bytes.
const (
	MaxChunk = 32 << 10
	MaxPiece = 256 << 10
)

// Op names what a request asks for.
type Op string

// The operations of the init process.
const (
	OpExec    Op = "exec"
	OpCancel  Op = "cancel" // of the exec with the id in Target
	OpRead    Op = "read"
	OpWrite   Op = "write"
	OpStat    Op = "stat"
	OpList    Op = "list"
	OpGrep    Op = "grep"
	OpGlob    Op = "glob"   // files by Grep.Glob, newest first
	OpRemove  Op = "remove" // one file
	OpUnpack  Op = "unpack"
	OpBase    Op = "base"
	OpChanges Op = "changes"
	OpApply   Op = "apply"
	// the next piece of the archive of the unpack or apply in Target, which has Stream set; one
	// without a body is its end
	OpPiece Op = "piece"
	OpKill  Op = "kill" // every process but init

	// A program at a terminal of its own, or at pipes. The others name it by the id of the request
	// that started it, in Target.
	OpTerminal Op = "terminal"
	OpPipes    Op = "pipes"  // of its standard error the end is kept
	OpScreen   Op = "screen" // waits for output; when there is no more, Exec says how the program ended
	OpType     Op = "type"   // the body is input
	OpResize   Op = "resize"
	OpHangUp   Op = "hangup" // ends it
)

// MaxTerminalRead bounds the output that one OpScreen answers, in bytes.
const MaxTerminalRead = 32 << 10

// Host is the first frame to the init process: what the sandbox sees of the host. It may come long
// before the rest is known.
type Host struct {
	Root       string // the folder of the host that holds the system folders, "" for the host's own
	Mounts     []Mount
	Namespaces bool // the process is the first of new ones, and builds a root in them
	SwitchUser bool // the owner is root and mapped another user to the sandbox's root
	Devices    bool // a mount of device files for this sandbox alone follows
}

// Devices are the device files that programs need, which are the same on every Linux.
var Devices = []struct {
	Name         string
	Major, Minor uint32
}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}}

// Boot is the second frame: how to build the sandbox.
type Boot struct {
	Name      string
	Workdir   string
	ReadOnly  []string // targets of the archives whose bytes follow in this order in the body
	Lengths   []int
	DiskBytes int64
	PIDs      int
	// PollMemory is the memory limit that the init process enforces itself by
	// polling; 0 where a cgroup does.
	PollMemory int64
	Insecure   string // the private folder of a sandbox without namespaces; empty where they isolate
	Landlock   bool   // with Insecure: rules of the kernel protect what is outside of the folder
	// Link is the sandbox's side of a link to another sandbox: LinkCaller, LinkServer or "" for
	// none. The last of Files is its socket then.
	Link string `json:",omitempty"`
	// LinkEnv is the environment of the commands that a LinkServer runs. Withheld are the caller's
	// own variables: the server does not take them over while they have these values.
	LinkEnv, Withheld map[string]string `json:",omitempty"`
	// Proxy asks for a socket that listens at ProxyAddress inside and is handed to the owner. The
	// last of Files is the way to hand it over.
	Proxy bool `json:",omitempty"`
	// Scratch says that the owner has mounted what the sandbox can write: the first of Files.
	Scratch bool `json:",omitempty"`
	// Files are the descriptors that came ahead of this: those of what the owner has mounted, with
	// a workspace over a snapshot which others use, too, or without, and the socket of a link or of
	// the proxy. Any can be missing.
	Files []int `json:"-"`
}

// ProxyHost and ProxyPort are where a sandbox's programs reach its owner's proxy. The port is one
// that they cannot listen at themselves.
var ProxyHost = [4]byte{127, 0, 0, 1}

// ProxyPort is the port of ProxyHost.
const ProxyPort = 888

// Sides of a link between two sandboxes.
const (
	LinkCaller = "caller" // its programs run commands in the other sandbox
	LinkServer = "server" // runs them
)

// Shared reports whether the workspace lies over a snapshot.
func (b Boot) Shared() bool { return len(b.Files) >= SharedFiles }

// ReportFD is the descriptor of a command on which it reports to its owner: one end of a stream
// socket. A shell's redirections have one digit.
const ReportFD = 9

// ControlFD is the socket, which the init process inherits.
const ControlFD = 3

// Places in Boot.Files: two detached mounts, first the writable file system and then the workspace,
// and the file that describes the workspace's base.
const (
	ScratchFile = iota
	WorkspaceFile
	BaseFile
	SharedFiles // how many
)

// Mount is a folder of the host that the sandbox sees.
type Mount struct {
	Source, Target string
	Overlay        bool
}

// Request is the header of a frame to the init process.
type Request struct {
	ID         uint64
	Op         Op
	Path       string            `json:",omitempty"`
	Mode       uint32            `json:",omitempty"`
	Max        int64             `json:",omitempty"` // bytes that the answer's body may have
	Argv       []string          `json:",omitempty"`
	Env        map[string]string `json:",omitempty"`
	WallMillis int64             `json:",omitempty"`
	Output     int               `json:",omitempty"`
	Background bool              `json:",omitempty"`
	// output is sent as it comes, in answers of its own; an archive is, in requests of their own
	Stream bool `json:",omitempty"`
	// of a last piece: the archive ends here because it cannot be read any further
	Broken bool `json:",omitempty"`
	// bytes that are kept of what the command writes to ReportFD; 0: it has no such descriptor
	Report   int    `json:",omitempty"`
	Greeting string `json:",omitempty"` // what the command can read from ReportFD
	Target   uint64 `json:",omitempty"` // id of another request
	Grep     *Grep  `json:",omitempty"`
	Rows     uint16 `json:",omitempty"` // of a terminal
	Columns  uint16 `json:",omitempty"`
}

// Grep is a search over files.
type Grep struct {
	Pattern         string
	Label           string // what Path is called in the answer
	Glob, Type      string
	Mode            string // content, files_with_matches or count
	Before, After   int
	IgnoreCase      bool
	Multiline       bool
	HeadLimit       int
	MaxBytes        int
	DeadlineSeconds int
}

// Response is the header of a frame from the init process.
type Response struct {
	ID    uint64
	Error *Error `json:",omitempty"`
	// Stream marks an answer that more will follow: its body is output, 1 of standard
	// output, 2 of standard error.
	Stream int   `json:",omitempty"`
	Exec   *Exec `json:",omitempty"`
	Total  int64 `json:",omitempty"` // size of the file read, which may exceed the body
	// Differs and Links are of OpChanges: whether anything differs from the base, and
	// whether the change makes links.
	Differs bool   `json:",omitempty"`
	Links   bool   `json:",omitempty"`
	State   *State `json:",omitempty"` // of OpStat
	// SharedInodes are the places, in the first answer, where the sandbox sees
	// inodes that others see, too.
	SharedInodes []string `json:",omitempty"`
}

// State is what is known of a file, or of a link itself.
type State struct {
	Size    int64
	Changed int64  // when content, mode or place last changed, in nanoseconds since 1970
	Mode    uint32 // of fs.FileMode
	Links   uint64
	Inode   uint64
}

// Exec is how a command ended. The body is its standard output, then its
// standard error, then its report.
type Exec struct {
	ExitCode              int
	StdoutBytes           int
	ReportBytes           int
	ReportDropped         int64 // bytes of the report that exceeded its limit
	Dropped               int64
	Signaled              bool // ExitCode follows from a signal
	TimedOut, OutOfMemory bool
	OutputExceeded        bool
	// Detached is the last time, in nanoseconds since 1970, at which a process that had left its
	// parent, or was left behind by the command, was seen; 0 if there was none.
	Detached int64
	// Leftovers is how many processes the command left running, which were killed.
	Leftovers int
	// StarvedMillis is how long the machine had no processor for the command; its
	// limit was so much longer.
	StarvedMillis int64
	PID           int
	Log           string
}

// MostStarved bounds how much longer a command may take than its limit because the machine has no
// processor for it, in limits.
const MostStarved = 3

// Error carries an error across with what errors.Is needs to know of it.
type Error struct {
	Kind    string `json:",omitempty"`
	Errno   int    `json:",omitempty"`
	Message string
}

// maxMessage bounds an error text, which may quote a path that untrusted code chose.
const maxMessage = 2048

var kinds = []struct {
	name string
	err  error
}{
	{"refused", ErrRefused},
	{"too-large", ErrTooLarge},
	{"invalid", ErrInvalid},
}

var (
	// ErrTooLarge says that an answer or a tree exceeds a limit.
	ErrTooLarge = errors.New("too large")
	// ErrInvalid says that a request asks for something that makes no sense.
	ErrInvalid = errors.New("invalid")
	// ErrRefused says that the kernel refused a part of the sandbox.
	ErrRefused = errors.New("refused by the kernel")
	// ErrProtocol says that a peer broke the protocol.
	ErrProtocol = errors.New("protocol violation")
)

// Wrap makes err fit to be sent.
func Wrap(err error) *Error {
	if err == nil {
		return nil
	}
	sent := &Error{Message: err.Error()}
	if len(sent.Message) > maxMessage {
		sent.Message = sent.Message[:maxMessage] + "…"
	}
	for _, kind := range kinds {
		if errors.Is(err, kind.err) {
			sent.Kind = kind.name
			return sent
		}
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		sent.Errno = int(errno)
	}
	return sent
}

// Error returns the text of the other side.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the error that the other side's wrapped, if it is one of this
// package or of the system.
func (e *Error) Unwrap() error {
	if e.Errno != 0 {
		return syscall.Errno(e.Errno)
	}
	for _, kind := range kinds {
		if kind.name == e.Kind {
			return kind.err
		}
	}
	return nil
}

// Write sends one frame. The parts of the body follow one another.
func Write(w io.Writer, header any, body ...[]byte) error {
	encoded, err := json.Marshal(header)
	if err != nil {
		return err
	}
	if len(encoded) > MaxHeader {
		return fmt.Errorf("message header of %d bytes: %w (limit %d)", len(encoded), ErrTooLarge, MaxHeader)
	}
	size := 0
	for _, part := range body {
		size += len(part)
	}
	if size > 1<<31-1 {
		return fmt.Errorf("message body of %d bytes: %w", size, ErrTooLarge)
	}
	frame := make([]byte, 8, 8+len(encoded))
	binary.BigEndian.PutUint32(frame, uint32(len(encoded)))
	binary.BigEndian.PutUint32(frame[4:], uint32(size))
	if _, err := w.Write(append(frame, encoded...)); err != nil {
		return err
	}
	for _, part := range body {
		if len(part) == 0 {
			continue
		}
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// Read receives one frame: the header into header, which must be a pointer, then a body of at most
// what limit allows. limit is asked after the header is decoded.
func Read(r io.Reader, header any, limit func() (int64, error)) ([]byte, error) {
	var sizes [8]byte
	if _, err := io.ReadFull(r, sizes[:]); err != nil {
		return nil, err
	}
	headerSize, bodySize := binary.BigEndian.Uint32(sizes[:4]), int64(binary.BigEndian.Uint32(sizes[4:]))
	if headerSize > MaxHeader {
		return nil, fmt.Errorf("%w: header of %d bytes (limit %d)", ErrProtocol, headerSize, MaxHeader)
	}
	encoded := make([]byte, headerSize)
	if _, err := io.ReadFull(r, encoded); err != nil {
		return nil, fmt.Errorf("%w: truncated header: %w", ErrProtocol, err)
	}
	if err := json.Unmarshal(encoded, header); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	allowed, err := limit()
	if err != nil {
		return nil, err
	}
	if bodySize > allowed {
		return nil, fmt.Errorf("%w: body of %d bytes where at most %d were asked for", ErrProtocol, bodySize, allowed)
	}
	body := make([]byte, bodySize)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("%w: truncated body: %w", ErrProtocol, err)
	}
	return body, nil
}
