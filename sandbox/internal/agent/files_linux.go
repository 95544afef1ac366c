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

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
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
		response.State, err = stat(path)
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

// openRegular opens a file without waiting for the other end of a pipe, and
// refuses what is not a file.
func openRegular(path string, flags int, mode fs.FileMode) (*os.File, fs.FileInfo, error) {
	file, err := openPlain(path, flags|syscall.O_NONBLOCK|syscall.O_NOCTTY, mode)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	}
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w: not a regular file", wire.ErrInvalid)}
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// readFile reads at most limit bytes; the total says whether there are more.
func readFile(path string, limit int64) (data []byte, total int64, err error) {
	file, info, err := openRegular(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	data, err = io.ReadAll(io.LimitReader(file, limit))
	return data, max(info.Size(), int64(len(data))), err
}

// stat tells of a file, and does not follow a link. The time of its last change is one
// that no process can set.
func stat(path string) (*wire.State, error) {
	file, err := openPlain(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	found := info.Sys().(*syscall.Stat_t)
	return &wire.State{Size: info.Size(), Changed: found.Ctim.Nano(), Mode: uint32(info.Mode()),
		Links: uint64(found.Nlink), Inode: found.Ino}, nil
}

// writeFile replaces a file's content and makes its folders. Mode 0 keeps the mode
// of a file that is there.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	create := mode.Perm()
	if create == 0 {
		create = 0o644
	}
	file, _, err := openRegular(path, os.O_WRONLY|os.O_CREATE, create)
	if err != nil {
		return err
	}
	err = file.Truncate(0)
	if err == nil {
		_, err = file.Write(data)
	}
	if err == nil && mode != 0 {
		err = file.Chmod(mode.Perm())
	}
	return errors.Join(err, file.Close())
}

// list answers the names in a folder, sorted, folders with a slash, each ended by a zero
// byte, and how many there are.
func list(path string, limit int64) ([]byte, int64, error) {
	folder, err := openPlain(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	defer folder.Close()
	entries, err := folder.ReadDir(maxListed + 1)
	if err != nil && !errors.Is(err, io.EOF) {
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
