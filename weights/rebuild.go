package weights

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/delta"
)

// MadeDelta is a delta that a trainer made: from the files of version Base to its new ones.
type MadeDelta struct {
	Base int64
	storage.Ref
}

// ErrDelta means that a trainer's delta does not lead to the files that it should lead to.
var ErrDelta = errors.New("the delta does not lead from that version to these files")

// Rebuild writes those files of tensors that the store lacks at their FileKey, as a trainer's delta
// makes them of an older version. It takes no disk, and of memory what a chunk and the delta's
// index take. A file appears when it has its SHA-256; what the delta says of itself is not trusted.
// Errors that lie in the delta or its base are ErrDelta.
func Rebuild(ctx context.Context, s storage.Store, policy string, files []File, made MadeDelta) error {
	if err := rebuild(ctx, s, policy, files, made); err != nil {
		return fmt.Errorf("policy %s: rebuild files from version %d: %w", policy, made.Base, err)
	}
	return nil
}

func rebuild(ctx context.Context, s storage.Store, policy string, files []File, made MadeDelta) (err error) {
	var missing []File
	for _, file := range files {
		if path.Ext(file.Name) != tensorsExtension || file.Key != FileKey(policy, file.SHA256) {
			continue
		}
		info, err := s.Stat(ctx, file.Key)
		switch {
		case errors.Is(err, storage.ErrNotFound) || err == nil && info.Size != file.Size:
			missing = append(missing, file)
		case err != nil:
			return err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	manifest, err := fetchManifest(ctx, s, policy, made.Base)
	if err != nil {
		return unfit(err)
	}
	base, err := openTensors(ctx, s, manifest)
	defer func() { err = errors.Join(err, base.close()) }()
	if err != nil {
		return unfit(err)
	}
	object, err := storage.OpenBlob(ctx, s, made.Ref)
	if err != nil {
		return unfit(err)
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	d, err := delta.Open(object, made.Size)
	if err != nil {
		return unfit(err)
	}
	for _, file := range missing {
		if err := rebuildFile(ctx, s, d, base, file); err != nil {
			return fmt.Errorf("file %s: %w", file.Name, unfit(err))
		}
	}
	return nil
}

func rebuildFile(ctx context.Context, s storage.Store, d *delta.Delta, base stored, file File) error {
	r, err := d.Reader(ctx, base.Checkpoint, file.Name)
	if err != nil {
		return err
	}
	err = s.PutReader(ctx, file.Key, &checked{from: r, ref: file.Ref, digest: sha256.New()}, file.Size)
	return errors.Join(err, r.Close())
}

// unfit marks an error of a delta or its base, and leaves those of the store alone, which may pass.
func unfit(err error) error {
	if storage.IsUnusable(err) || errors.Is(err, delta.ErrBase) {
		return fmt.Errorf("%w: %w", ErrDelta, err)
	}
	return err
}

// checked gives an error in place of io.EOF, and before more than the file's bytes, where the
// bytes are not the file's.
type checked struct {
	from   io.Reader
	ref    storage.Ref
	digest hash.Hash
	read   int64
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.digest.Write(p[:n])
	c.read += int64(n)
	if c.read > c.ref.Size || err == io.EOF &&
		(c.read != c.ref.Size || hex.EncodeToString(c.digest.Sum(nil)) != c.ref.SHA256) {
		return 0, corrupt("its sha256 is not %s, or its size not %d", c.ref.SHA256, c.ref.Size)
	}
	return n, err
}
