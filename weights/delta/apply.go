package delta

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// ErrBase means that a delta was made from another base than the one at hand.
var ErrBase = errors.New("the base is another one than the delta was made from")

// Apply makes the folder dir with the files that the delta leads to from base, byte for byte, in
// less than 256 MiB of memory. The folder appears when the digest of every tensor is right and the
// files are on the disk, or not at all; it must not exist before. The base may be open in the same
// files that others read: it is not changed. A crash may leave a folder that begins with a dot,
// dir's name and ".partial".
func Apply(ctx context.Context, base *safetensors.Checkpoint, d *Delta, dir string) error {
	return apply(ctx, base, d, dir, true)
}

// ApplyUnsynced is Apply that leaves it to the system when the files reach the disk. A power
// failure may leave a folder of wrong bytes: who uses it verifies what it finds after a start.
func ApplyUnsynced(ctx context.Context, base *safetensors.Checkpoint, d *Delta, dir string) error {
	return apply(ctx, base, d, dir, false)
}

func apply(ctx context.Context, base *safetensors.Checkpoint, d *Delta, dir string, sync bool) (err error) {
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("apply delta: %s: %w", dir, errors.Join(storage.ErrExists, err))
	}
	parent := filepath.Dir(dir)
	partial, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+".partial")
	if err != nil {
		return fmt.Errorf("apply delta: %w", err)
	}
	if err := d.writeFiles(ctx, base, partial, sync); err != nil {
		return fmt.Errorf("apply delta: %w", errors.Join(err, os.RemoveAll(partial)))
	}
	if err = os.Chmod(partial, 0o755); err == nil {
		err = os.Rename(partial, dir)
	}
	if err != nil {
		return fmt.Errorf("apply delta: %w", errors.Join(err, os.RemoveAll(partial)))
	}
	if sync {
		return syncFolder(parent)
	}
	return nil
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d *Delta) writeFiles(ctx context.Context, base *safetensors.Checkpoint, dir string, sync bool) (err error) {
	files := map[string]*os.File{}
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	for _, file := range d.files {
		f, err := os.OpenFile(filepath.Join(dir, file.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		files[file.Name] = f
		if _, err := f.Write(file.Header); err != nil {
			return err
		}
	}
	if err := d.applyTensors(ctx, base, files); err != nil {
		return err
	}
	if !sync {
		return nil
	}
	for _, f := range files {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return syncFolder(dir)
}

// applying is a tensor while its chunks are applied.
type applying struct {
	*Tensor
	base safetensors.Located
	out  *os.File
	new  []Digest
}

func (d *Delta) applyTensors(ctx context.Context, base *safetensors.Checkpoint, files map[string]*os.File) error {
	tensors := make([]*applying, len(d.Tensors))
	for i, t := range d.Tensors {
		tensors[i] = &applying{Tensor: t, out: files[t.File], new: make([]Digest, t.chunks())}
		if err := tensors[i].find(base); err != nil {
			return err
		}
	}
	next := chunks(tensors)
	group, ctx := errgroup.WithContext(ctx)
	for range workers() {
		group.Go(func() error {
			c, err := newCodec()
			if err != nil {
				return err
			}
			defer c.close()
			for t, i := next(); t != nil; t, i = next() {
				if err := errors.Join(ctx.Err(), d.applyChunk(c, t, i)); err != nil {
					return fmt.Errorf("tensor %.80q: %w", t.Name, err)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, t := range tensors {
		if digestOfAll(t.new) != t.New {
			return fmt.Errorf("tensor %.80q: %w: %w", t.Name, storage.ErrCorrupt, ErrBase)
		}
	}
	return nil
}

// find looks for the base's tensor.
func (t *applying) find(base *safetensors.Checkpoint) error {
	if t.From == "" {
		return nil
	}
	found, ok := base.Tensor(t.From)
	if !ok || found.Size != t.Size || found.Dtype != t.Dtype {
		return fmt.Errorf("tensor %.80q: %w: it has no %.80q of %d bytes of %s", t.Name, ErrBase,
			t.From, t.Size, t.Dtype)
	}
	t.base = found
	return nil
}

// chunks gives one chunk after the other to whoever asks; nil at the end.
func chunks(tensors []*applying) func() (*applying, int) {
	var lock sync.Mutex
	tensor, chunk := 0, 0
	return func() (*applying, int) {
		lock.Lock()
		defer lock.Unlock()
		for tensor < len(tensors) && chunk == tensors[tensor].chunks() {
			tensor, chunk = tensor+1, 0
		}
		if tensor == len(tensors) {
			return nil, 0
		}
		chunk++
		return tensors[tensor], chunk - 1
	}
}

func (d *Delta) applyChunk(c *codec, t *applying, i int) error {
	data, err := d.newChunk(c, t, i)
	if err == nil {
		_, err = t.out.WriteAt(data, t.Offset+int64(i)*ChunkSize)
	}
	return err
}

// newChunk gives a chunk's new bytes, and notes their digest. The memory is used again.
func (d *Delta) newChunk(c *codec, t *applying, i int) ([]byte, error) {
	data := buffer(&c.new, t.chunkSize(i))
	if t.From != "" {
		if err := readAt(t.base.File, data, t.base.Offset+int64(i)*ChunkSize); err != nil {
			return nil, fmt.Errorf("the base: %w", err)
		}
	}
	if t.sizes[i] == 0 {
		t.new[i] = digestOf(data)
		return data, nil
	}
	frame, err := d.readFrame(c, t.Tensor, i)
	if err != nil {
		return nil, err
	}
	if frame[0] != full && t.From == "" {
		return nil, corrupt("chunk %d is a difference to nothing", i)
	}
	if err := c.apply(frame, data, width(t.Dtype)); err != nil {
		return nil, err
	}
	if t.new[i] = digestOf(data); t.new[i] != Digest(frame[1:frameHead]) {
		return nil, fmt.Errorf("chunk %d has another digest: the delta is damaged, or %w: %w", i,
			ErrBase, storage.ErrCorrupt)
	}
	return data, nil
}

// readFrame reads a chunk of the delta. The memory is used again.
func (d *Delta) readFrame(c *codec, t *Tensor, i int) ([]byte, error) {
	offset := t.offset
	for _, size := range t.sizes[:i] {
		offset += int64(size)
	}
	frame := buffer(&c.frame, int(t.sizes[i]))
	return frame, readAt(d.r, frame, offset)
}
