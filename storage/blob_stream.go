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
	"strings"
)

// streamPiece is how much of a blob is read at once, in bytes.
const streamPiece = 4 << 20

// PutBlobFrom is PutBlob of size bytes of r, which it reads twice, in pieces: for the digest, then for the upload. Bytes that have changed in
// between are ErrCorrupt, and not uploaded.
func PutBlobFrom(ctx context.Context, s Store, r io.ReaderAt, size int64) (Ref, error) {
	digest, err := digestOf(ctx, r, size)
	if err != nil {
		return Ref{}, err
	}
	return putRefFrom(ctx, s, Ref{Key: BlobKey(digest), SHA256: digest, Size: size}, r)
}

// PutNamedFrom is PutNamed of size bytes of r, which it reads as PutBlobFrom does.
func PutNamedFrom(ctx context.Context, s Store, keyPrefix, ext string, r io.ReaderAt, size int64) (Ref, error) {
	digest, err := digestOf(ctx, r, size)
	if err != nil {
		return Ref{}, err
	}
	key := keyPrefix + "-" + digest[:16] + "." + strings.TrimPrefix(ext, ".")
	return putRefFrom(ctx, s, Ref{Key: key, SHA256: digest, Size: size}, r)
}

func digestOf(ctx context.Context, r io.ReaderAt, size int64) (string, error) {
	digest := sha256.New()
	_, err := copyPieces(digest, Exactly(ctx, io.NewSectionReader(r, 0, size), size, MaxStream))
	return hex.EncodeToString(digest.Sum(nil)), err
}

func putRefFrom(ctx context.Context, s Store, ref Ref, r io.ReaderAt) (Ref, error) {
	if there, err := isYoung(ctx, s, ref); there || err != nil {
		return ref, err
	}
	source := &verified{ref: ref, digest: sha256.New(), Reader: bufio.NewReaderSize(io.NewSectionReader(r, 0, ref.Size), streamPiece)}
	return ref, s.PutReader(ctx, ref.Key, source, ref.Size)
}

// copyPieces is io.Copy in pieces of a size that suits hashes and stores.
func copyPieces(w io.Writer, r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 256<<10))
}

// ReadBlob reads what a Ref names from front to end, holding a few megabytes of it: ErrNotFound, and ErrCorrupt in place of io.EOF where the
// bytes were others. Who reads must not rely upon them before. It reads no more than the Ref's size, whatever is there.
func ReadBlob(ctx context.Context, s Store, ref Ref) (io.ReadCloser, error) {
	object, err := OpenBlob(ctx, s, ref)
	if err != nil {
		return nil, err
	}
	return &verified{ref: ref, digest: sha256.New(), Reader: NewReader(object, ref.Size), Closer: object}, nil
}

// OpenBlob opens what a Ref names for reading in ranges: ErrNotFound, or ErrCorrupt when it has fewer bytes. Their digest is not verified.
func OpenBlob(ctx context.Context, s Store, ref Ref) (Object, error) {
	if err := ref.Validate(); err != nil {
		return nil, err
	}
	object, err := s.Open(ctx, ref.Key)
	if err != nil {
		return nil, err
	}
	if object.Size() < ref.Size {
		return nil, errors.Join(fmt.Errorf("%s: %w: fewer than %d bytes", ref.Key, ErrCorrupt, ref.Size), object.Close())
	}
	return object, nil
}

// NewReader reads the first size bytes of an object from front to end, in pieces that are worth a request.
func NewReader(r io.ReaderAt, size int64) io.Reader {
	return bufio.NewReaderSize(io.NewSectionReader(r, 0, size), int(max(16, min(size, streamPiece))))
}

// verified gives what its reader gives, and at the end ErrCorrupt unless that was what ref names.
type verified struct {
	io.Reader
	io.Closer
	ref    Ref
	digest hash.Hash
	read   int64
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.Reader.Read(p)
	v.digest.Write(p[:n])
	v.read += int64(n)
	if err == io.EOF && (v.read != v.ref.Size || hex.EncodeToString(v.digest.Sum(nil)) != v.ref.SHA256) {
		// The digest that it has is not told: who may name an object need not be allowed to read it.
		return n, fmt.Errorf("%s: %w: its sha256 is not %s", v.ref.Key, ErrCorrupt, v.ref.SHA256)
	}
	return n, err
}

// VerifyBlob checks that the store holds what a Ref names, with the errors of GetBlob, and holds no more than a few megabytes of it at once.
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
