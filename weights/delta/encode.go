package delta

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/weights/safetensors"
)

// maxWorkers bounds the memory: a worker takes about 25 MiB.
const maxWorkers = 6

func workers() int { return min(runtime.GOMAXPROCS(0), maxWorkers) }

// Encode writes the delta from base to next, in less than 256 MiB of memory. The files of both must
// stay as they are meanwhile.
//
// A tensor is compared with the base's tensor of its name, type and size; a new name that has the
// bytes of a tensor that is gone counts as renamed.
func Encode(ctx context.Context, w io.Writer, base, next *safetensors.Checkpoint) error {
	if err := encode(ctx, w, base, next); err != nil {
		return fmt.Errorf("encode delta: %w", err)
	}
	return nil
}

func encode(ctx context.Context, w io.Writer, base, next *safetensors.Checkpoint) error {
	renames, err := renamed(ctx, base, next)
	if err != nil {
		return err
	}
	var files []newFile
	var tensors []*written
	for _, f := range next.Files {
		header := make([]byte, f.DataOffset())
		if err := readAt(f, header, 0); err != nil {
			return fmt.Errorf("file %s: %w", f.Name, err)
		}
		if !plainName(f.Name) {
			return fmt.Errorf("file name %.140q: want letters, digits and ._-, ending in %s", f.Name,
				safetensors.Extension)
		}
		files = append(files, newFile{Name: f.Name, Size: f.Size, Header: header})
		for _, t := range f.Tensors {
			entry := &written{Tensor: Tensor{Tensor: t, File: f.Name}, next: f}
			entry.find(base, renames)
			tensors = append(tensors, entry)
		}
	}
	return write(ctx, w, files, tensors, encodeChunk)
}

// written is a tensor of a delta that is being written.
type written struct {
	Tensor
	next, base *safetensors.File // Encode's
	baseOffset int64
	given      bool // Old and New are known already
	chain      []*Tensor
	chainOf    []*Delta // Fold's

	old, new []Digest // of the chunks
}

// find looks for the base's tensor.
func (t *written) find(base *safetensors.Checkpoint, renames map[string]string) {
	from := t.Name
	if renames[from] != "" {
		from = renames[from]
	}
	if b, ok := base.Tensor(from); ok && b.Dtype == t.Dtype && b.Size == t.Size {
		t.From, t.base, t.baseOffset = from, b.File, b.Offset
	}
}

// renamed maps new names to those of tensors that are gone and had the same bytes.
func renamed(ctx context.Context, base, next *safetensors.Checkpoint) (map[string]string, error) {
	type kind struct {
		dtype safetensors.Dtype
		size  int64
	}
	gone := map[kind]map[Digest]string{}
	for _, f := range base.Files {
		for _, t := range f.Tensors {
			if _, stays := next.Tensor(t.Name); !stays && t.Size > 0 {
				gone[kind{t.Dtype, t.Size}] = nil
			}
		}
	}
	wanted := map[kind]bool{}
	names := map[string]string{}
	return names, eachOnly(ctx, next, base, func(f *safetensors.File, t *safetensors.Tensor) error {
		k := kind{t.Dtype, t.Size}
		candidates, possible := gone[k]
		if !possible {
			return nil
		}
		if !wanted[k] {
			wanted[k] = true
			candidates = map[Digest]string{}
			gone[k] = candidates
			err := eachOnly(ctx, base, next, func(f *safetensors.File, old *safetensors.Tensor) error {
				if (kind{old.Dtype, old.Size}) != k {
					return nil
				}
				digest, err := tensorDigest(ctx, f, old)
				candidates[digest] = old.Name
				return err
			})
			if err != nil {
				return err
			}
		}
		digest, err := tensorDigest(ctx, f, t)
		if from := candidates[digest]; from != "" {
			names[t.Name] = from
		}
		return err
	})
}

// eachOnly calls for each tensor of c that other lacks.
func eachOnly(ctx context.Context, c, other *safetensors.Checkpoint,
	call func(*safetensors.File, *safetensors.Tensor) error) error {
	for _, f := range c.Files {
		for i := range f.Tensors {
			if _, both := other.Tensor(f.Tensors[i].Name); both {
				continue
			}
			if err := call(f, &f.Tensors[i]); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

func tensorDigest(ctx context.Context, f *safetensors.File, t *safetensors.Tensor) (Digest, error) {
	chunk := make([]byte, min(ChunkSize, t.Size))
	var digests []Digest
	for at := int64(0); at < t.Size; at += ChunkSize {
		part := chunk[:min(ChunkSize, t.Size-at)]
		if err := readAt(f, part, t.Offset+at); err != nil {
			return Digest{}, fmt.Errorf("tensor %.80q: %w", t.Name, err)
		}
		digests = append(digests, digestOf(part))
		if err := ctx.Err(); err != nil {
			return Digest{}, err
		}
	}
	return digestOfAll(digests), nil
}

// pieceSize is the number of bytes that are read at once of a file on the disk. They stay in a
// core's cache until they are compared.
const pieceSize = 512 << 10

// encodeChunk reads a chunk of both checkpoints and makes its frame.
func encodeChunk(c *codec, t *written, i int) ([]byte, error) {
	n, w := t.chunkSize(i), width(t.Dtype)
	if t.From == "" {
		c.new = buffer(&c.new, n)
		if err := t.readNew(c.new, i, 0); err != nil {
			return nil, err
		}
		t.new[i] = digestOf(c.new)
		return c.encodeFull(c.new, w, t.new[i]), nil
	}
	piece := n // other files may ask a server for each piece
	if onDisk(t.next) && onDisk(t.base) {
		piece = min(pieceSize, n)
	}
	if fits, err := c.collectChunk(t, i, piece); err != nil {
		return nil, err
	} else if fits {
		return c.encodeSparse(n/w, w, t.new[i]), nil
	}
	if piece < n {
		if err := c.read(t, i, 0, n); err != nil {
			return nil, err
		}
	}
	t.old[i], t.new[i] = digestOf(c.old), digestOf(c.new)
	return c.encodeDense(c.old, c.new, w, t.new[i], true), nil
}

func onDisk(f *safetensors.File) bool {
	_, ok := f.ReaderAt.(*os.File)
	return ok
}

// collectChunk collects what changed in a chunk, and its digests. It reports whether a
// sparse chunk can hold that.
func (c *codec) collectChunk(t *written, i, piece int) (bool, error) {
	n, w := t.chunkSize(i), width(t.Dtype)
	var old, new xxh3.Hasher128
	c.begin(n / w)
	for at := 0; at < n; at += piece {
		if err := c.read(t, i, at, min(piece, n-at)); err != nil {
			return false, err
		}
		unchanged := c.count == 0
		if !c.collect(c.old, c.new, w) {
			return false, nil
		}
		if unchanged && c.count > 0 {
			old = new // up to here
		}
		if c.count > 0 {
			_, _ = old.Write(c.old) // a hash takes everything
		}
		_, _ = new.Write(c.new)
	}
	t.new[i] = new.Sum128().Bytes()
	if t.old[i] = t.new[i]; c.count > 0 {
		t.old[i] = old.Sum128().Bytes()
	}
	return true, nil
}

// read reads bytes of a chunk of both checkpoints.
func (c *codec) read(t *written, chunk, at, n int) error {
	c.old, c.new = buffer(&c.old, n), buffer(&c.new, n)
	if err := t.readNew(c.new, chunk, at); err != nil {
		return err
	}
	if err := readAt(t.base, c.old, t.baseOffset+int64(chunk)*ChunkSize+int64(at)); err != nil {
		return fmt.Errorf("the base's file %s: %w", t.base.Name, err)
	}
	return nil
}

func (t *written) readNew(data []byte, chunk, at int) error {
	if err := readAt(t.next, data, t.Offset+int64(chunk)*ChunkSize+int64(at)); err != nil {
		return fmt.Errorf("file %s: %w", t.File, err)
	}
	return nil
}

// work is one chunk on its way to the writer.
type work struct {
	tensor *written
	chunk  int
	frame  []byte
	done   chan struct{}
}

// write writes a delta: chunks are made by several workers, and come out in their order.
func write(ctx context.Context, w io.Writer, files []newFile, tensors []*written,
	chunk func(*codec, *written, int) ([]byte, error)) error {
	if _, err := io.WriteString(w, magic); err != nil {
		return err
	}
	n := workers()
	group, ctx := errgroup.WithContext(ctx)
	todo, ordered := make(chan *work), make(chan *work, 2*n)
	spare := make(chan []byte, 4*n) // memory of frames that were written
	group.Go(func() error {
		defer close(todo)
		defer close(ordered)
		return plan(ctx, tensors, todo, ordered)
	})
	for range n {
		group.Go(func() error { return produce(todo, spare, chunk) })
	}
	group.Go(func() error { return collect(ctx, w, ordered, spare) })
	if err := group.Wait(); err != nil {
		return err
	}
	return writeIndex(w, files, tensors)
}

// plan hands out the chunks in the order of the file.
func plan(ctx context.Context, tensors []*written, todo, ordered chan<- *work) error {
	for _, t := range tensors {
		n := t.chunks()
		t.old, t.new, t.sizes = make([]Digest, n), make([]Digest, n), make([]uint32, n)
		for i := range n {
			job := &work{tensor: t, chunk: i, done: make(chan struct{})}
			for _, channel := range []chan<- *work{ordered, todo} {
				select {
				case channel <- job:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
	}
	return nil
}

func produce(todo <-chan *work, spare <-chan []byte, chunk func(*codec, *written, int) ([]byte, error)) (err error) {
	c, err := newCodec()
	if err != nil {
		return err
	}
	defer c.close()
	for job := range todo {
		frame, err := chunk(c, job.tensor, job.chunk)
		if err != nil {
			return fmt.Errorf("tensor %.80q: %w", job.tensor.Name, err)
		}
		if len(frame) > 0 {
			var memory []byte
			select {
			case memory = <-spare:
			default:
			}
			job.frame = append(memory[:0], frame...)
		}
		close(job.done)
	}
	return nil
}

func collect(ctx context.Context, w io.Writer, ordered <-chan *work, spare chan<- []byte) error {
	for job := range ordered {
		select {
		case <-job.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if len(job.frame) == 0 {
			continue
		}
		if _, err := w.Write(job.frame); err != nil {
			return err
		}
		job.tensor.sizes[job.chunk] = uint32(len(job.frame))
		select {
		case spare <- job.frame:
		default:
		}
	}
	return ctx.Err()
}

// writeIndex ends a delta.
func writeIndex(w io.Writer, files []newFile, tensors []*written) error {
	content := index{Files: files}
	for _, t := range tensors {
		entry := indexTensor{Name: t.Name, From: t.From, New: t.New}
		old := t.Old
		if !t.given {
			entry.New, old = digestOfAll(t.new), digestOfAll(t.old)
		}
		if t.From != "" {
			entry.Old = &old
		}
		if t.Bytes() > 0 {
			entry.Sizes = t.sizes
		}
		content.Tensors = append(content.Tensors, entry)
	}
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if len(text) > maxIndex {
		return fmt.Errorf("an index of %d bytes (limit %d)", len(text), maxIndex)
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	defer encoder.Close()
	packed := encoder.EncodeAll(text, nil)
	digest := digestOf(packed)
	foot := binary.LittleEndian.AppendUint64(nil, uint64(len(packed)))
	foot = binary.LittleEndian.AppendUint64(foot, uint64(len(text)))
	foot = append(append(foot, digest[:]...), magic...)
	if _, err := w.Write(packed); err != nil {
		return err
	}
	_, err = w.Write(foot)
	return err
}
