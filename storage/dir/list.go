package dir

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/storage"
)

// List implements storage.Store.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[storage.Info, error] {
	return func(yield func(storage.Info, error) bool) {
		if err := storage.ValidatePrefix(prefix); err != nil {
			yield(storage.Info{}, s.failed("list", prefix, err))
			return
		}
		folder := "."
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			folder = prefix[:i]
		}
		s.walk(ctx, folder, prefix, yield)
	}
}

// walk yields what is in and below a folder, and says whether to go on.
func (s *Store) walk(ctx context.Context, folder, prefix string, yield func(storage.Info, error) bool) bool {
	if err := ctx.Err(); err != nil {
		return stop(yield, s.failed("list", prefix, err))
	}
	entries, err := fs.ReadDir(s.root.FS(), folder)
	if missing(err) {
		return true
	}
	if err != nil {
		return stop(yield, s.failed("list", prefix, err))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(sortName(a), sortName(b)) })
	for _, entry := range entries {
		key := path.Join(folder, entry.Name())
		if entry.Name() == own || !within(key, entry.IsDir(), prefix) {
			continue
		}
		if entry.IsDir() {
			if !s.walk(ctx, key, prefix, yield) {
				return false
			}
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return stop(yield, s.failed("list", prefix, err))
		}
		if !yield(storage.Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil) {
			return false
		}
	}
	return true
}

// sortName lets a folder stand where its keys stand: "a-b" comes before "a/b", as in the order of bytes.
func sortName(entry fs.DirEntry) string {
	if entry.IsDir() {
		return entry.Name() + "/"
	}
	return entry.Name()
}

// within says that an object's key begins with the prefix, or that one below a folder might.
func within(key string, folder bool, prefix string) bool {
	if !folder {
		return strings.HasPrefix(key, prefix)
	}
	return strings.HasPrefix(key+"/", prefix) || strings.HasPrefix(prefix, key+"/")
}

func stop(yield func(storage.Info, error) bool, err error) bool {
	yield(storage.Info{}, err)
	return false
}
