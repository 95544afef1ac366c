package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal"
	"github.com/rondo-rl/rondo/sandbox/internal/agent"
)

// program is what sandboxes have as their first process.
type program struct {
	*os.File
	name string // as Report.FirstProcess
}

// path is where the program can be started, here and in every process that
// was forked from this one.
func (p program) path() string { return fmt.Sprintf("/proc/self/fd/%d", p.Fd()) }

// firstProgram is the one that is beside this program, where it is of the same build, or
// else this program itself.
var firstProgram = sync.OnceValues(func() (program, error) {
	alone, err := openAlone()
	if err == nil {
		return alone, nil
	}
	own, ownErr := seal("/proc/self/exe")
	if ownErr != nil {
		return program{}, ownErr
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("its folder has no %s: `go build -o DIR ./cmd/...` builds both", agent.InitName)
	}
	return program{own, fmt.Sprintf("rondo itself (%v)", err)}, nil
})

// askTime bounds the wait for a program to say of what build it is.
const askTime = 10 * time.Second

func openAlone() (program, error) {
	own, err := os.Executable()
	if err == nil {
		own, err = filepath.EvalSymlinks(own)
	}
	if err != nil {
		return program{}, err
	}
	path := filepath.Join(filepath.Dir(own), agent.InitName)
	file, err := seal(path)
	if err != nil {
		return program{}, err
	}
	p := program{file, agent.InitName}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	ask := exec.CommandContext(ctx, p.path(), internal.Ask)
	ask.Env = []string{}
	said, err := ask.Output()
	if err == nil && strings.TrimSpace(string(said)) != internal.Fingerprint() {
		err = errors.New("it is of another build")
	}
	if err != nil {
		return program{}, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return p, nil
}

// seal copies a program to sealed memory: readable for the mapped user wherever the file lies,
// still there when the file is replaced, and beyond the reach of anything inside. Where the system
// forbids programs in memory it is the file itself.
func seal(path string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("rondo", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 there is no such flag, and none is needed
		fd, err = unix.MemfdCreate("rondo", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if errors.Is(err, unix.EACCES) { // vm.memfd_noexec=2
		return file, nil
	}
	defer file.Close()
	if errors.Is(err, unix.ENOSYS) { // a sandbox inside of a sandbox has no such files
		return unnamedCopy(file)
	}
	if err != nil {
		return nil, fmt.Errorf("copy %s to memory: %w", path, err)
	}
	memory := os.NewFile(uintptr(fd), "rondo")
	if _, err := io.Copy(memory, file); err != nil {
		return nil, errors.Join(fmt.Errorf("copy %s to memory: %w", path, err), memory.Close())
	}
	seals := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, errors.Join(fmt.Errorf("seal %s: %w", path, err), memory.Close())
	}
	return memory, nil
}

// unnamedCopy copies a program to a file without a name.
func unnamedCopy(program *os.File) (*os.File, error) {
	written, err := os.CreateTemp("", "rondo")
	if err != nil {
		return nil, err
	}
	defer os.Remove(written.Name())
	_, err = io.Copy(written, program)
	if err := errors.Join(err, written.Chmod(0o755), written.Close()); err != nil {
		return nil, err
	}
	return os.Open(written.Name()) // what is open for writing cannot be started
}
