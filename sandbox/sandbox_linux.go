package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rondo-rl/rondo/sandbox/internal/archive"
	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// answerGrace is how much longer than a command's own limit its answer may take before the
// sandbox counts as broken.
const answerGrace = 15 * time.Second

// operationTime bounds what is not a command: reading, writing, searching, packing.
const operationTime = 60 * time.Second

// archiveTime bounds the way of a whole workspace into the sandbox or out of it.
const archiveTime = 10 * time.Minute

// maxStream bounds what the sandbox, which is not trusted to keep to limits, may send of a change:
// contents, and a few KiB of headers for each entry.
const maxStream = int64(MaxBytes + MaxFiles*4096)

// Sandbox is one isolated place. Its methods may be called at the same time; each returns
// ErrClosed, wrapped, once it is closed. Errors are of the infrastructure, but those that wrap
// fs.ErrNotExist, fs.ErrPermission, ErrTooLarge, ErrInvalid, syscall.ENOSPC and the like, which are
// the doing of what runs inside.
type Sandbox struct {
	spec      Spec
	isolation string
	user      uint32 // of the host, 0 for the owner's own
	shared    bool   // the workspace lies over a snapshot that others use, too
	release   func() // lets that go
	// sharedInodes are the places inside that show inodes of the host.
	sharedInodes []string
	private      string // the folder of a sandbox without isolation
	process      *process
	group        *cgroup
	conn         *connection
	proxy        net.Listener // nil without Spec.Proxy
	counted      bool         // among those for which first processes are held ready
	closing      sync.Once
	closed       error
}

// New makes a sandbox. Where the kernel refuses, the error says what and why, unless
// spec.AllowInsecure is set.
func New(ctx context.Context, spec Spec) (*Sandbox, error) {
	spec = spec.withDefaults()
	if err := spec.validate(); err != nil {
		return nil, fmt.Errorf("make sandbox %s: %w", spec.Name, err)
	}
	if spec.Calls != nil {
		size, err := callProgramBytes()
		if err != nil {
			return nil, fmt.Errorf("make sandbox %s: %w", spec.Name, err)
		}
		spec.Limits.MemoryBytes += size
	}
	reaping()
	var refusals []error
	for _, level := range spec.ladder() {
		s, err := create(ctx, spec, level)
		if err == nil {
			return s, nil
		}
		refusals = append(refusals, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("make sandbox %s: %w", spec.Name, errors.Join(refusals...))
}

// create makes a sandbox of one level of isolation.
func create(ctx context.Context, spec Spec, level string) (*Sandbox, error) {
	if level == IsolationNamespaces {
		s, err := launch(ctx, spec, level, hostView{})
		if errors.Is(err, wire.ErrRefused) && spec.Snapshot != nil && spec.Snapshot.from != nil {
			// perhaps it is the shared mount that the kernel refuses
			spec.Snapshot = &Snapshot{fetch: spec.Snapshot.fetch}
			return launch(ctx, spec, level, hostView{})
		}
		return s, err
	}
	if spec.Calls != nil || spec.Serves != nil {
		return nil, fmt.Errorf("%s: %w", level, ErrLink)
	}
	if spec.Proxy {
		return nil, fmt.Errorf("%s: %w", level, ErrProxy)
	}
	if spec.Disk != "" {
		return nil, fmt.Errorf("%s: %w: a disk of its own needs namespaces", level, ErrInvalid)
	}
	if spec.Root != "" {
		return nil, fmt.Errorf("%s: %w: a separate root file system needs namespaces", level, ErrInvalid)
	}
	own, err := newHostView(level)
	if err != nil {
		return nil, err
	}
	s, err := launch(ctx, spec, level, own)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(own.folder))
	}
	return s, nil
}

// launch starts the first process, puts it under its limits while it waits, and
// lets it build the sandbox.
func launch(ctx context.Context, spec Spec, level string, own hostView) (*Sandbox, error) {
	s := &Sandbox{spec: spec, isolation: level, private: own.folder, user: own.user}
	if level == IsolationNamespaces && os.Geteuid() == 0 {
		s.user = spec.Role.hostUser()
	}
	of := kind{s.user, spec.host(level)}
	first, err := takePrewarmed(of, spec.inMemory())
	if err != nil {
		return nil, explain(err)
	}
	s.process, s.group, s.conn = first.process, first.group, newConnection(first.process.control)
	if err := s.boot(ctx); err != nil {
		err = errors.Join(explain(err), s.process.lastWords())
		_ = s.Close()
		if first.waited && ctx.Err() == nil {
			// perhaps it is that it waited; another one that did may follow, but
			// in the end comes a new one
			return launch(ctx, spec, level, own)
		}
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	if level == IsolationNamespaces {
		s.counted = true
		prewarmNext(of)
	}
	return s, nil
}

// begin copies the snapshot into a workspace that does not share it.
func (s *Sandbox) begin(ctx context.Context) error {
	if s.spec.Snapshot == nil || s.shared {
		return nil
	}
	err := s.UnpackFrom(ctx, s.spec.Workdir, func() (io.ReadCloser, error) { return s.spec.Snapshot.fetch(ctx) })
	if err == nil && s.spec.Role == RoleAgent { // nobody asks what the tests changed
		err = s.SetBase(ctx)
	}
	return err
}

func (s *Sandbox) boot(ctx context.Context) error {
	boot := wire.Boot{
		Name: s.spec.Name, Workdir: s.spec.Workdir, DiskBytes: s.spec.Limits.DiskBytes, PIDs: s.spec.Limits.PIDs,
		Insecure: s.private, Landlock: s.isolation == IsolationLandlock,
	}
	if !s.group.limitsMemory() {
		boot.PollMemory = s.spec.Limits.MemoryBytes
	}
	var archives [][]byte
	for target, data := range s.spec.ReadOnly {
		boot.ReadOnly = append(boot.ReadOnly, target)
		boot.Lengths = append(boot.Lengths, len(data))
		archives = append(archives, data)
	}
	ctx, cancel := context.WithTimeout(ctx, operationTime)
	defer cancel()
	files, err := s.mounts()
	if err != nil {
		return err
	}
	boot.Scratch = len(files) > 0
	linked := s.link(&boot, files)
	err = s.proxied(boot, linked, func(boot wire.Boot, files []*os.File) error {
		ready, err := s.conn.boot(ctx, files, boot, archives)
		s.sharedInodes = ready.SharedInodes
		return err
	})
	for _, file := range files {
		file.Close()
	}
	return err
}

// Isolation is the level that the kernel allowed, one of Isolations.
func (s *Sandbox) Isolation() string { return s.isolation }

// SharedInodes lists the places inside that show inodes of the host: programs of two sandboxes that
// both see one can pass bits by its locks. There are none where the owner is root and the host has
// mounted nothing below its system folders; without namespaces it is the whole tree.
func (s *Sandbox) SharedInodes() []string {
	if s.isolation != IsolationNamespaces {
		return []string{"/"}
	}
	return s.sharedInodes
}

// User tells whom the sandbox's processes are to the host: with UserOwn they are someone whom no
// process of another role's sandbox is.
func (s *Sandbox) User() string {
	if s.user == 0 {
		return UserShared
	}
	return UserOwn
}

// Cgroup tells what kind of control groups limit the sandbox, "v1" or "v2"; with "none" memory is
// limited by polling, processes by a resource limit.
func (s *Sandbox) Cgroup() string {
	if !s.group.limitsMemory() {
		return "none"
	}
	return s.group.place.version
}

// MemoryBytes is the memory that the sandbox's control group counts now, files on its disk
// included; 0 without a group.
func (s *Sandbox) MemoryBytes() int64 { return s.group.memory() }

// FSMode tells how the workspace came to be: "overlay", over a snapshot that others share, its
// changes in memory or on a disk of its own; or "copy", all of it there.
func (s *Sandbox) FSMode() string {
	if s.shared {
		return "overlay"
	}
	return "copy"
}

// Workdir is the workspace's absolute path inside.
func (s *Sandbox) Workdir() string { return s.spec.Workdir }

// Close kills everything inside and gives back what the sandbox held. It may
// be called more than once.
func (s *Sandbox) Close() error {
	s.closing.Do(func() {
		s.conn.close(ErrClosed)
		if s.proxy != nil {
			_ = s.proxy.Close() // whoever served it may have closed it
		}
		if s.private == "" {
			s.process.kill()
		} else {
			s.process.leave()
			s.group.kill()
			s.closed = os.RemoveAll(s.private)
		}
		s.closed = errors.Join(s.closed, s.group.remove())
		s.letGo()
		if s.counted {
			stopPrewarming()
		}
	})
	return s.closed
}

func (s *Sandbox) letGo() {
	if s.release != nil {
		s.release()
	}
}

// operate runs an operation that answers bytes, at most limit of them.
func (s *Sandbox) operate(ctx context.Context, request wire.Request, limit int64,
	body []byte) (wire.Response, []byte, error) {
	if strings.ContainsRune(request.Path, 0) {
		return wire.Response{}, nil, fmt.Errorf("%s %q: %w: a zero byte in the path", request.Op,
			request.Path, ErrInvalid)
	}
	ctx, cancel := context.WithTimeout(ctx, operationTime)
	defer cancel()
	request.Max = limit
	kills := s.group.oomKills()
	response, data, err := s.conn.call(ctx, request, limit, body)
	return response, data, s.failed(string(request.Op), err, kills)
}

// resolve makes a path absolute: relative ones are relative to the workspace.
func (s *Sandbox) resolve(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(s.spec.Workdir, name)
}

// ReadFile reads a regular file; a larger one than max gives ErrTooLarge. Relative paths are
// relative to the workspace.
func (s *Sandbox) ReadFile(ctx context.Context, name string, max int64) ([]byte, error) {
	if max < 0 || max > MaxArchive {
		return nil, fmt.Errorf("read %s: %w: limit of %d bytes", name, ErrInvalid, max)
	}
	response, data, err := s.operate(ctx, wire.Request{Op: wire.OpRead, Path: s.resolve(name)}, max, nil)
	if err == nil && response.Total > int64(len(data)) {
		return nil, fmt.Errorf("read %s: %w: %d bytes (limit %d)", name, ErrTooLarge, response.Total, max)
	}
	return data, err
}

// Stat gives the size of a file and when it last changed.
func (s *Sandbox) Stat(ctx context.Context, name string) (FileState, error) {
	response, _, err := s.operate(ctx, wire.Request{Op: wire.OpStat, Path: s.resolve(name)}, 0, nil)
	found := response.State
	if err == nil && found == nil {
		err = wire.ErrProtocol
	}
	if err != nil {
		return FileState{}, err
	}
	return FileState{Size: found.Size, Changed: time.Unix(0, found.Changed), Mode: fs.FileMode(found.Mode),
		Links: found.Links, Inode: found.Inode}, nil
}

// WriteFile replaces a file's content and makes the folders above it. Mode 0 keeps the mode
// of a file that is there.
func (s *Sandbox) WriteFile(ctx context.Context, name string, data []byte, mode fs.FileMode) error {
	if int64(len(data)) > s.spec.Limits.DiskBytes {
		return fmt.Errorf("write %s: %w", name, syscall.ENOSPC)
	}
	_, _, err := s.operate(ctx, wire.Request{Op: wire.OpWrite, Path: s.resolve(name), Mode: uint32(mode.Perm())}, 0,
		data)
	return err
}

// maxListing bounds the bytes of one listing.
const maxListing = 1 << 20

// List answers the names in a folder, sorted, those of folders with a slash at the end, and
// whether that is all of them.
func (s *Sandbox) List(ctx context.Context, name string) (names []string, complete bool, err error) {
	response, data, err := s.operate(ctx, wire.Request{Op: wire.OpList, Path: s.resolve(name)}, maxListing, nil)
	if err != nil || len(data) == 0 {
		return nil, response.Total == 0, err
	}
	names = strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
	return names, int64(len(names)) >= response.Total, nil
}

// Bounds of one search.
const (
	maxGrepOutput  = 48 << 10
	grepOverhead   = 128 << 10 // the last match may have long context
	grepSeconds    = 20
	maxGrepMatches = 5000
)

// Grep searches a file, or the text files below a folder but hidden ones, and answers lines of
// path:line:text. Bad patterns give ErrInvalid.
func (s *Sandbox) Grep(ctx context.Context, name string, query Grep) ([]byte, error) {
	sent := wire.Grep{
		Pattern: query.Pattern, Label: query.Label, Glob: query.Glob, Type: query.Type, Mode: query.Mode,
		Before: query.Before, After: query.After,
		IgnoreCase: query.IgnoreCase, Multiline: query.Multiline, HeadLimit: min(query.HeadLimit, maxGrepMatches),
		MaxBytes: maxGrepOutput, DeadlineSeconds: grepSeconds,
	}
	_, data, err := s.operate(ctx, wire.Request{Op: wire.OpGrep, Path: s.resolve(name), Grep: &sent},
		maxGrepOutput+grepOverhead, nil)
	return data, err
}

// Unpack writes a snapshot (see Pack) into a folder, which it makes.
func (s *Sandbox) Unpack(ctx context.Context, dir string, snapshot []byte) error {
	return s.UnpackFrom(ctx, dir, Bytes(snapshot))
}

// UnpackFrom is Unpack of a snapshot that need not fit into memory.
func (s *Sandbox) UnpackFrom(ctx context.Context, dir string, snapshot Source) error {
	return s.feed(ctx, wire.Request{Op: wire.OpUnpack, Path: s.resolve(dir)}, snapshot)
}

// SetBase remembers the workspace as it is now as the base of Changes.
func (s *Sandbox) SetBase(ctx context.Context) error {
	_, _, err := s.operate(ctx, wire.Request{Op: wire.OpBase}, 0, nil)
	return err
}

// Changes answers an archive of all that differs from the base: additions, edits, modes, links and
// deletions; nil when nothing does. Equal workspaces over equal bases give equal bytes. More than
// MaxChange of them give ErrTooLarge; see ChangesTo.
func (s *Sandbox) Changes(ctx context.Context) ([]byte, error) {
	blocks := archive.Blocks{Limit: MaxChange}
	compressed, err := archive.Compress(&blocks)
	if err != nil {
		return nil, err
	}
	found, err := s.ChangesTo(ctx, compressed)
	if err = errors.Join(err, compressed.Close()); errors.Is(err, archive.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	if err != nil || !found.Differs {
		return nil, err
	}
	return bytes.Join(blocks.Pieces, nil), nil
}

// ChangesTo writes the archive of Changes to w as it comes, uncompressed. When nothing differs,
// or with an error, what it wrote is void. More than MaxBytes of contents, or than the disk
// holds, give ErrTooLarge.
func (s *Sandbox) ChangesTo(ctx context.Context, w io.Writer) (ChangeFound, error) {
	ctx, cancel := context.WithTimeout(ctx, archiveTime)
	defer cancel()
	kills, left, failed := s.group.oomKills(), maxStream, error(nil)
	response, _, err := s.conn.follow(ctx, wire.Request{Op: wire.OpChanges}, 0, nil, func(_ int, data []byte) {
		if left -= int64(len(data)); left < 0 && failed == nil {
			failed = fmt.Errorf("%w: a change of more than %d bytes", ErrTooLarge, maxStream)
		}
		if failed == nil {
			_, failed = w.Write(data)
		}
	})
	if failed != nil {
		return ChangeFound{}, failed
	}
	return ChangeFound{response.Differs, response.Links}, s.failed(string(wire.OpChanges), err, kills)
}

// Apply writes an archive of Changes over the workspace, which must hold the same base.
// The base stays what it was.
func (s *Sandbox) Apply(ctx context.Context, changes []byte) error {
	return s.ApplyFrom(ctx, Bytes(changes))
}

// ApplyFrom is Apply of a change that need not fit into memory.
func (s *Sandbox) ApplyFrom(ctx context.Context, changes Source) error {
	if changes == nil {
		return nil
	}
	return s.feed(ctx, wire.Request{Op: wire.OpApply}, changes)
}

// feed runs an operation with an archive.
func (s *Sandbox) feed(ctx context.Context, request wire.Request, of Source) error {
	if strings.ContainsRune(request.Path, 0) {
		return fmt.Errorf("%s %q: %w: a zero byte in the path", request.Op, request.Path, ErrInvalid)
	}
	from, err := of.Open()
	if err != nil {
		return err
	}
	defer from.Close()
	ctx, cancel := context.WithTimeout(ctx, archiveTime)
	defer cancel()
	kills := s.group.oomKills()
	_, err = s.conn.feed(ctx, request, from)
	return s.failed(string(request.Op), err, kills)
}

// KillAll ends every process inside, background commands too. Files stay.
func (s *Sandbox) KillAll(ctx context.Context) error {
	_, _, err := s.operate(ctx, wire.Request{Op: wire.OpKill}, 0, nil)
	return err
}
