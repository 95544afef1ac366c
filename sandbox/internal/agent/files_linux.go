package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
	"golang.org/x/sys/unix"
)

// maxListed bounds the entries of one listing.
const maxListed = 10_000

// file serves the operations on single paths. It runs on a worker's thread.
func (a *agent) file(request wire.Request, body []byte) (response wire.Response, out [][]byte, err error) {
	path := a.private.path(request.Path)
	var data []byte
	switch request.Op {
	case wire.OpRead:
		data, response.Total, err = readFile(path, request.Max)
	case wire.OpWrite:
		err = writeFile(path, body, fs.FileMode(request.Mode))
	case wire.OpStat:
		response.Total, response.Changed, err = stat(path)
	case wire.OpList:
		data, response.Total, err = list(path, request.Max)
	case wire.OpGrep:
		data, err = grep(path, *request.Grep)
	case wire.OpGlob:
		data, response.Total, err = glob(path, *request.Grep)
	case wire.OpRemove:
		err = remove(path)
	default:
		err = fmt.Errorf("%w: operation %q", wire.ErrInvalid, request.Op)
	}
	return response, [][]byte{data}, err
}

// openRegular opens a file without waiting for the other end of a pipe, and refuses what is not a file.
func openRegular(path string, flags int, mode fs.FileMode) (*os.File, fs.FileInfo, error) {
	file, err := os.OpenFile(path, flags|syscall.O_NONBLOCK|syscall.O_NOCTTY, mode)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	}
	if err == nil && (!info.Mode().IsRegular() || onProc(file)) {
		err = &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w: not a regular file", wire.ErrInvalid)}
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// onProc tells whether a file is one of the kernel's: there, this process would show itself, and could be changed.
func onProc(file *os.File) bool {
	var system unix.Statfs_t
	return unix.Fstatfs(int(file.Fd()), &system) != nil || int64(system.Type) == unix.PROC_SUPER_MAGIC
}

// readFile reads at most limit bytes; the total tells whether there are more.
func readFile(path string, limit int64) (data []byte, total int64, err error) {
	file, info, err := openRegular(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	data, err = io.ReadAll(io.LimitReader(file, limit))
	return data, max(info.Size(), int64(len(data))), err
}

// stat answers a file's size and the time of its last change, which no process can set.
func stat(path string) (size, changed int64, err error) {
	var found unix.Stat_t
	if err := unix.Stat(path, &found); err != nil {
		return 0, 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return found.Size, found.Ctim.Nano(), nil
}

// writeFile replaces a file's content and makes its folders. Mode 0 keeps the mode of a file that is there.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	create := mode.Perm()
	if create == 0 {
		create = 0o644
	}
	file, _, err := openRegular(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, create)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil && mode != 0 {
		err = file.Chmod(mode.Perm())
	}
	return errors.Join(err, file.Close())
}

// list answers the names in a folder, sorted, folders with a slash, each ended by a zero byte, and how many there are.
func list(path string, limit int64) ([]byte, int64, error) {
	folder, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	defer folder.Close()
	entries, err := folder.ReadDir(maxListed + 1)
	if err != nil && err != io.EOF {
		return nil, 0, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	var out []byte
	for _, entry := range entries[:min(len(entries), maxListed)] {
		name := entry.Name()
		if entry.IsDir() {
			name += "/"
		}
		if int64(len(out)+len(name)+1) > limit {
			break
		}
		out = append(append(out, name...), 0)
	}
	return out, int64(len(entries)), nil
}
