package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/agent"
	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// CallFolder is where the command under-test is in a sandbox that has a link's caller's
// side: it belongs in the PATH.
const CallFolder = agent.CallFolder

// Link joins two sandboxes, of which one runs commands in the other. Their first processes talk
// over it: none of what they send goes through the owner. One link is for one pair of sandboxes.
type Link struct{ caller, server *os.File }

// NewLink makes a link. It may be closed once both sandboxes are made.
func NewLink() (*Link, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("link two sandboxes: %w", err)
	}
	return &Link{os.NewFile(uintptr(pair[0]), "link"), os.NewFile(uintptr(pair[1]), "link")}, nil
}

// Close lets go of the link. The sandboxes keep it.
func (l *Link) Close() error { return errors.Join(l.caller.Close(), l.server.Close()) }

// link describes the sandbox's side of its link, and adds the socket to the files that it gets.
func (s *Sandbox) link(boot *wire.Boot, files []*os.File) []*os.File {
	switch {
	case s.spec.Calls != nil:
		boot.Link = wire.LinkCaller
		return append(slices.Clone(files), s.spec.Calls.caller)
	case s.spec.Serves != nil:
		boot.Link, boot.LinkEnv, boot.Withheld = wire.LinkServer, s.Env(), s.spec.Serves.Withheld
		maps.Copy(boot.LinkEnv, s.spec.Serves.Env)
		return append(slices.Clone(files), s.spec.Serves.Link.server)
	}
	return files
}

// callProgramBytes is the size of the command under-test, which is in its sandbox's memory and is
// none of what its programs may have.
func callProgramBytes() (int64, error) {
	program, err := firstProgram()
	if err != nil {
		return 0, err
	}
	info, err := program.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
