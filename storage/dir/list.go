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
			yield(storage.Info{}, s.failed(ctx, "list", prefix, err))
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
		return stop(yield, s.failed(ctx, "list", prefix, err))
	}
	entries, err := fs.ReadDir(s.root.FS(), folder)
	if missing(err) {
		return true
	}
	if err != nil {
		return stop(yield, s.failed(ctx, "list", prefix, err))
	}
	items := make([]item, 0, len(entries))
	for _, entry := range entries {
		key := path.Join(folder, entry.Name())
		switch {
		case entry.Name() == packFolder:
			infos, err := s.packsOf(folder).list(folder)
			if err != nil {
				return stop(yield, s.failed(ctx, "list", prefix, err))
			}
			for _, info := range infos {
				items = append(items, item{key: info.Key, info: info})
			}
		case entry.Name() != own:
			items = append(items, item{key: key, entry: entry})
		}
	}
	slices.SortFunc(items, func(a, b item) int { return cmp.Or(cmp.Compare(a.order(), b.order()), a.rank()-b.rank()) })
	for i, each := range items {
		if !mayContain(each.key, each.isFolder(), prefix) || i > 0 && each.entry == nil && items[i-1].key == each.key {
			continue
		}
		if each.isFolder() {
			if !s.walk(ctx, each.key, prefix, yield) {
				return false
			}
			continue
		}
		info, err := each.describe()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return stop(yield, s.failed(ctx, "list", prefix, err))
		}
		if !yield(info, nil) {
			return false
		}
	}
	return true
}

// item is a file, a folder, or an object in a pack.
type item struct {
	key   string
	entry fs.DirEntry // nil in a pack
	info  storage.Info
}

func (i item) isFolder() bool { return i.entry != nil && i.entry.IsDir() }

// order lets a folder stand where its keys stand: "a-b" comes before "a/b",
// as in the order of bytes.
func (i item) order() string {
	if i.isFolder() {
		return i.key + "/"
	}
	return i.key
}

// rank lets a file come before what a pack has of its key: it is what readers get.
func (i item) rank() int {
	if i.entry == nil {
		return 1
	}
	return 0
}

// describe fails with fs.ErrNotExist where there is no regular file.
func (i item) describe() (storage.Info, error) {
	if i.entry == nil {
		return i.info, nil
	}
	info, err := i.entry.Info()
	if err != nil {
		return storage.Info{}, err
	}
	if !info.Mode().IsRegular() {
		return storage.Info{}, fs.ErrNotExist
	}
	return storage.Info{Key: i.key, Size: info.Size(), Modified: info.ModTime()}, nil
}

// mayContain says that an object's key begins with the prefix, or that one below a folder might.
func mayContain(key string, folder bool, prefix string) bool {
	if !folder {
		return strings.HasPrefix(key, prefix)
	}
	return strings.HasPrefix(key+"/", prefix) || strings.HasPrefix(prefix, key+"/")
}

func stop(yield func(storage.Info, error) bool, err error) bool {
	yield(storage.Info{}, err)
	return false
}
