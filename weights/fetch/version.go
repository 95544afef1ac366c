package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

const (
	// readers read at once, each one piece: together they hold readers*pieceSize bytes.
	readers = 8
	// pieceSize is what is read at once, in bytes.
	pieceSize = 8 << 20
	// hashers read whole files at once to verify them.
	hashers = 2
)

// Progress is told how many of a version's bytes are there, and before that how many of the deltas'
// bytes that lead to it. It is called by several goroutines.
type Progress func(done, total int64)

// Fetch lays a version into the folder and lets the link point to it. What was read before it was
// interrupted is not read again, nor are files that another version in the folder has, too. Where
// deltas lead to the version from one in the folder, they are read in place of its tensors. base,
// which may be "", is a folder with the settings and the tokenizer of the model; what a version has
// not of them is copied from there.
//
// The error is storage.ErrNotFound where the version was not published, and
// storage.ErrCorrupt where the store's bytes are not those that were; then the folder's
// versions and its link are as before.
func (f *Folder) Fetch(ctx context.Context, s storage.Store, version int64, base string,
	told Progress) (*Version, error) {
	v, err := f.fetch(ctx, s, version, base, told)
	if err != nil {
		return nil, fmt.Errorf("fetch policy %s, version %d: %w", f.policy, version, err)
	}
	return v, nil
}

func (f *Folder) fetch(ctx context.Context, s storage.Store, version int64, base string,
	told Progress) (*Version, error) {
	v, err := f.readVersion(ctx, s, version)
	if err != nil {
		return nil, err
	}
	have, err := f.Have(version)
	if err == nil && have.Digest == v.Digest {
		return have, f.point(have)
	}
	for _, dir := range []string{f.filesPath(version), f.marksPath(version)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	from := f.sources(s)
	made, began, err := f.shortcut(ctx, from, v, told)
	if err != nil {
		return nil, err
	}
	before := from.read.Load()
	if err := f.fill(ctx, from, v, told); err != nil {
		return nil, err
	}
	if v.Deltas > 0 {
		f.measured(made, time.Since(began), makeRate)
	} else {
		f.measured(from.read.Load()-before, time.Since(began), storeRate)
	}
	v.Read, v.Near, v.Refused = from.read.Load(), from.lent.Load(), from.wrong
	if err := f.copySettings(v, base); err != nil {
		return nil, err
	}
	return v, f.publish(v)
}

// readVersion is a version as its manifest says it is.
func (f *Folder) readVersion(ctx context.Context, s storage.Store, version int64) (*Version, error) {
	m, data, err := weights.ReadManifest(ctx, s, f.policy, version)
	if err == nil {
		err = weights.CheckWhole(ctx, s, f.policy, version)
	}
	if err != nil {
		return nil, err
	}
	return &Version{Policy: f.policy, Version: version, Digest: storage.Digest(data), Files: m.Files,
		Dir: f.path(version)}, nil
}

// fill reads a version's files into its part, and verifies each of them.
func (f *Folder) fill(ctx context.Context, s *sources, v *Version, told Progress) error {
	total, done := v.Bytes(), atomic.Int64{}
	add := func(n int64) {
		if now := done.Add(n); told != nil {
			told(now, total)
		}
	}
	verify, verifying := errgroup.WithContext(ctx)
	verify.SetLimit(hashers)
	var files []*landing
	for _, file := range v.Files {
		l := f.landing(s, v, file)
		if err := l.start(f.find(file.Ref)); err != nil {
			return errors.Join(err, verify.Wait())
		}
		if err := l.read(verifying, add); err != nil {
			return worse(err, verify.Wait())
		}
		verify.Go(func() error { return l.finish(verifying) })
		files = append(files, l)
	}
	if err := verify.Wait(); err != nil {
		return err
	}
	if i := slices.IndexFunc(files, func(l *landing) bool { return l.wrong }); i >= 0 && v.Deltas > 0 {
		v.Deltas, v.Whole = 0,
			fmt.Sprintf("file %s: the deltas lead to other bytes than were published, or the version that they begin at is damaged on the disk", files[i].file.Name)
	}
	return nil
}

func (f *Folder) landing(s *sources, v *Version, file weights.File) *landing {
	useless := func() error { return f.giveUp(v.Version) }
	return &landing{store: s, file: file, piece: f.piece, path: filepath.Join(f.filesPath(v.Version), file.Name),
		marks: filepath.Join(f.marksPath(v.Version), file.Name), useless: useless}
}

// worse is the error that made the other one: a context that ended because of a file says nothing.
func worse(err, cause error) error {
	if cause != nil && errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

// landing is one file on its way into a part. marks has a byte for each piece that has been
// written, so that one that is interrupted goes on.
type landing struct {
	store       *sources
	file        weights.File
	path, marks string
	piece       int64
	fresh       bool // every byte of it was read by this process
	wrong       bool // what was there before was not the file
	useless     func() error
}

// start makes the file, or takes it from another version.
func (l *landing) start(other string) error {
	_, err := os.Stat(l.marks)
	l.fresh = errors.Is(err, fs.ErrNotExist)
	if !l.fresh {
		return err
	}
	if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if other != "" && os.Link(other, l.path) == nil {
		l.fresh = false
		return os.WriteFile(l.marks, allMarked(l.pieces()), 0o644)
	}
	return os.WriteFile(l.marks, make([]byte, l.pieces()), 0o644)
}

func (l *landing) pieces() int { return int((l.file.Size + l.piece - 1) / l.piece) }

func allMarked(n int) []byte {
	marked := make([]byte, n)
	for i := range marked {
		marked[i] = 1
	}
	return marked
}

// read reads the pieces that are missing, several at once.
func (l *landing) read(ctx context.Context, add func(int64)) error {
	marked, err := os.ReadFile(l.marks)
	if err != nil {
		return err
	}
	if len(marked) != l.pieces() { // of another content under the same name
		return l.again(ctx, add)
	}
	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(readers)
	var into, marks *os.File
	for i, done := range marked {
		at := int64(i) * l.piece
		size := min(l.piece, l.file.Size-at)
		if done == 1 {
			add(size)
			continue
		}
		if into == nil { // a file that is linked from another version is not opened for writing
			if into, marks, err = l.open(); err != nil {
				return err
			}
			defer into.Close()
			defer marks.Close()
		}
		reading.Go(func() error { return l.readPiece(ctx, into, marks, i, at, size, add) })
	}
	if err := reading.Wait(); err != nil {
		return fmt.Errorf("file %s: %w", l.file.Name, err)
	}
	if l.file.Size > 0 {
		return nil
	}
	if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(l.path, nil, 0o644)
}

func (l *landing) open() (into, marks *os.File, err error) {
	if into, err = os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
		return nil, nil, err
	}
	if marks, err = os.OpenFile(l.marks, os.O_WRONLY, 0o644); err != nil {
		into.Close()
		return nil, nil, err
	}
	return into, marks, nil
}

func (l *landing) readPiece(ctx context.Context, into, marks *os.File, i int, at, size int64, add func(int64)) error {
	data, err := l.store.GetRange(ctx, l.file.Key, at, size)
	if errors.Is(err, storage.ErrRange) {
		return fmt.Errorf("%w: fewer than %d bytes", storage.ErrCorrupt, l.file.Size)
	}
	if err != nil {
		return err
	}
	if _, err := into.WriteAt(data, at); err != nil {
		return err
	}
	if _, err := marks.WriteAt([]byte{1}, int64(i)); err != nil {
		return err
	}
	add(size)
	return nil
}

// finish verifies the file. One that is wrong is read once more, if a part of it was there before,
// as power may have failed in between, or came from another store than the origin.
func (l *landing) finish(ctx context.Context) error {
	err := l.verify(ctx)
	for errors.Is(err, storage.ErrCorrupt) && (!l.fresh || l.store.distrust(l.file.Key)) {
		if !l.fresh {
			l.wrong = true
			if l.useless != nil {
				if err := l.useless(); err != nil {
					return err
				}
			}
		}
		if err = l.again(ctx, func(int64) {}); err == nil {
			err = l.verify(ctx)
		}
	}
	if errors.Is(err, storage.ErrCorrupt) {
		os.Remove(l.marks) // so that nothing of it is believed the next time
	}
	if err != nil {
		return err
	}
	return os.Chmod(l.path, 0o444) // other versions may share it
}

// again reads the whole file anew.
func (l *landing) again(ctx context.Context, add func(int64)) error {
	if err := os.Remove(l.marks); err != nil {
		return err
	}
	if err := l.start(""); err != nil {
		return err
	}
	return l.read(ctx, add)
}

func (l *landing) verify(ctx context.Context) error {
	file, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer file.Close()
	digest := sha256.New()
	n, err := io.Copy(digest, &ending{ctx, file})
	if err != nil {
		return err
	}
	if n != l.file.Size || hex.EncodeToString(digest.Sum(nil)) != l.file.SHA256 {
		return fmt.Errorf("file %s: %w: its %d bytes are not those that were published (sha256 %s)", l.file.Name,
			storage.ErrCorrupt, n, l.file.SHA256)
	}
	return nil
}

// ending is a reader that ends with its context.
type ending struct {
	ctx context.Context
	io.Reader
}

func (r *ending) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// Limits of what is copied from the model's folder.
const (
	maxBeside     = 64
	maxBesideSize = 256 << 20
)

// copySettings copies settings and tokenizer of the model into a version
// that has none of that name.
func (f *Folder) copySettings(v *Version, base string) error {
	if base == "" {
		return nil
	}
	entries, err := os.ReadDir(base)
	if err != nil {
		return fmt.Errorf("the model's settings: %w", err)
	}
	copied := 0
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(base, e.Name())) // hubs link into a cache
		if err != nil || !info.Mode().IsRegular() || !setting(e.Name()) || v.has(e.Name()) {
			continue
		}
		if copied++; copied > maxBeside || info.Size() > maxBesideSize {
			return fmt.Errorf("the model's settings: more than %d files in %s, or %s has more than %d bytes", maxBeside,
				base, e.Name(), maxBesideSize)
		}
		data, err := os.ReadFile(filepath.Join(base, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(f.filesPath(v.Version), e.Name()), data, 0o644)
		}
		if err != nil {
			return fmt.Errorf("the model's settings: %w", err)
		}
	}
	return nil
}

// setting reports whether a file of a model is one of its settings, and not weights, their index,
// or a note of this package.
func setting(name string) bool {
	switch filepath.Ext(name) {
	case ".json":
		return name[0] != '.' && name != aboutName && name != "model.safetensors.index.json" &&
			name != "pytorch_model.bin.index.json"
	case ".txt", ".model", ".jinja", ".tiktoken":
		return name[0] != '.'
	}
	return false
}

func (v *Version) has(name string) bool {
	for _, file := range v.Files {
		if file.Name == name {
			return true
		}
	}
	return false
}
