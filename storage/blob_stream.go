package storage

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
)

// streamPiece is how much of a blob is read at once, in bytes.
const streamPiece = 4 << 20

// PutBlobFrom is PutBlob of size bytes of r, which it reads twice, in pieces: for the digest, then
// for the upload. Bytes that have changed in between are ErrCorrupt, and not uploaded.
func PutBlobFrom(ctx context.Context, s Store, r io.ReaderAt, size int64) (Ref, error) {
	return PutKeyedFrom(ctx, s, BlobKey, r, size)
}

// PutKeyedFrom is PutBlobFrom at another key of the content's digest.
func PutKeyedFrom(ctx context.Context, s Store, key func(digest string) string, r io.ReaderAt,
	size int64) (Ref, error) {
	digest, err := digestOf(ctx, r, size)
	if err != nil {
		return Ref{}, err
	}
	ref := Ref{Key: key(digest), SHA256: digest, Size: size}
	if there, err := isYoung(ctx, s, ref); there || err != nil {
		return ref, err
	}
	return ref, s.PutReader(ctx, ref.Key, Verified(r, ref), size)
}

func digestOf(ctx context.Context, r io.ReaderAt, size int64) (string, error) {
	digest := sha256.New()
	_, err := copyPieces(digest, Exactly(ctx, io.NewSectionReader(r, 0, size), size, MaxStream))
	return hex.EncodeToString(digest.Sum(nil)), err
}

// copyPieces is io.Copy in pieces of a size that suits hashes and stores.
func copyPieces(w io.Writer, r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 256<<10))
}

// ReadBlob reads what a Ref names from front to end, holding a few megabytes of it: ErrNotFound,
// and ErrCorrupt in place of io.EOF where the bytes were others. Who reads must not rely upon them
// before. It reads no more than the Ref's size, whatever is there.
func ReadBlob(ctx context.Context, s Store, ref Ref) (io.ReadCloser, error) {
	object, err := OpenBlob(ctx, s, ref)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{Verified(object, ref), object}, nil
}

// OpenBlob opens what a Ref names for reading in ranges: ErrNotFound, or ErrCorrupt when it has
// fewer bytes. Their digest is not verified.
func OpenBlob(ctx context.Context, s Store, ref Ref) (Object, error) {
	if err := ref.Validate(); err != nil {
		return nil, err
	}
	object, err := s.Open(ctx, ref.Key)
	if err != nil {
		return nil, err
	}
	if object.Size() < ref.Size {
		return nil, errors.Join(fmt.Errorf("%s: %w: fewer than %d bytes", ref.Key, ErrCorrupt, ref.Size),
			object.Close())
	}
	return object, nil
}

// Verified reads ref.Size bytes of r from front to end, in pieces that are worth a request, and
// gives ErrCorrupt in place of io.EOF where they are not what ref names.
func Verified(r io.ReaderAt, ref Ref) io.Reader {
	pieces := bufio.NewReaderSize(io.NewSectionReader(r, 0, ref.Size), int(max(16, min(ref.Size, streamPiece))))
	return &verified{from: pieces, ref: ref, digest: sha256.New()}
}

type verified struct {
	from   *bufio.Reader
	ref    Ref
	digest hash.Hash
	read   int64
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.from.Read(p)
	v.digest.Write(p[:n])
	v.read += int64(n)
	if err == io.EOF && (v.read != v.ref.Size || hex.EncodeToString(v.digest.Sum(nil)) != v.ref.SHA256) {
		// The digest that it has is not told: who may name an object need
		// not be allowed to read it.
		return n, fmt.Errorf("%s: %w: its sha256 is not %s", v.ref.Key, ErrCorrupt, v.ref.SHA256)
	}
	return n, err
}

// VerifyBlob checks that the store holds what a Ref names, with the errors of GetBlob, and holds no
// more than a few megabytes of it at once.
func VerifyBlob(ctx context.Context, s Store, ref Ref) error {
	_, err := CopyBlob(ctx, io.Discard, s, ref)
	return err
}

// CopyBlob writes what a Ref names to w. After an error w holds nothing that anybody may rely upon.
func CopyBlob(ctx context.Context, w io.Writer, s Store, ref Ref) (int64, error) {
	r, err := ReadBlob(ctx, s, ref)
	if err != nil {
		return 0, err
	}
	n, err := copyPieces(w, r)
	return n, errors.Join(err, r.Close())
}
