package update

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/rondo-rl/rondo/index"
	"github.com/rondo-rl/rondo/index/merkle"
)

// Folder is a working tree, and the index that is kept of it.
type Folder struct {
	Index
	Dir string
	// StateFile remembers which content each file had, so that an unchanged one is not
	// read again. It may be lost.
	StateFile string
}

// statePlace is what states are sealed for.
const statePlace = "tree state 1"

// Sync brings the index up to the folder as it is now, and says what the index holds then. With a
// *merkle.PartialError it does, too: what could not be looked at stays as it was indexed.
func (f *Folder) Sync(ctx context.Context, show func(Progress)) (index.State, error) {
	known, err := f.loadState()
	if err != nil {
		return index.State{}, err
	}
	return f.sync(ctx, present, known, show)
}

// Renew makes the index anew, whatever is in its place, and uses nothing of what was known: the way
// out where an index is damaged.
func (f *Folder) Renew(ctx context.Context, show func(Progress)) (index.State, error) {
	return f.sync(ctx, anew, nil, show)
}

func (f *Folder) sync(ctx context.Context, from beginning, known *merkle.State,
	show func(Progress)) (index.State, error) {
	walked, err := merkle.Walk(ctx, f.Dir, known, merkle.DefaultLimits())
	var partial *merkle.PartialError
	if err != nil && !errors.As(err, &partial) || ctx.Err() != nil {
		return index.State{}, errors.Join(err, ctx.Err())
	}
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return index.State{}, err
	}
	defer root.Close()
	state, err := f.Index.sync(ctx, from, walked, folderOpener(root), show)
	if err != nil {
		return state, err
	}
	if walked.Changed {
		if err := os.MkdirAll(filepath.Dir(f.StateFile), 0o700); err != nil {
			return state, err
		}
		if err := walked.State.Save(f.StateFile, func(data []byte) []byte {
			return f.Keys.Seal(data,
				statePlace)
		}); err != nil {
			return state, fmt.Errorf("remember the state of %s: %w", f.Dir, err)
		}
	}
	if partial != nil {
		return state, partial
	}
	return state, nil
}

// folderOpener opens regular files of a folder. It waits for nobody who would write to a pipe
// that took a file's place.
func folderOpener(root *os.Root) opener {
	return func(path string) (io.ReadCloser, error) {
		f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			f.Close()
			return nil, errors.Join(err, errChanged)
		}
		return f, nil
	}
}

// errMoved: a file is not what the walk saw.
var errChanged = errors.New("changed while it was read")

// read reads a file that must have the content that the walk saw, by its mark:
// errMoved where it has not.
func (u *updating) read(file merkle.File) ([]byte, error) {
	opened, err := u.open(file.Path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
		return nil, errChanged
	}
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	content, err := io.ReadAll(io.LimitReader(opened, file.Size+1))
	if err != nil {
		return nil, err
	}
	if digestOf(u.Keys.Content(sha256.Sum256(content))) != file.Digest {
		return nil, errChanged
	}
	return content, nil
}
