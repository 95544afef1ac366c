package weights

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rondo-rl/rondo/storage"
)

// FileKey is where a file of a policy's versions lies: weights/<policy>/files/<its SHA-256>.
// Versions that hold the same file share it.
func FileKey(policy, digest string) string { return "weights/" + policy + "/files/" + digest }

// Upload puts a file of size bytes at its FileKey, for PublishFrom. It reads r twice, in pieces. A
// young file that is there is not sent again.
func Upload(ctx context.Context, s storage.Store, policy string, r io.ReaderAt, size int64) (storage.Ref, error) {
	if err := checkNames(policy, 0); err != nil {
		return storage.Ref{}, err
	}
	return storage.PutKeyedFrom(ctx, s, func(digest string) string { return FileKey(policy, digest) }, r, size)
}

// FileError is an error in one of the files that are to be published.
type FileError struct {
	File File
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("file %s: %v", e.File.Name, e.Err) }

// Unwrap gives the cause.
func (e *FileError) Unwrap() error { return e.Err }

// admit verifies a file in the store, and gives its place below the policy. Digest, structure and
// elements are those of the same bytes: of the object as it was when it was opened.
func admit(ctx context.Context, s storage.Store, policy string, file File, seen *inspection) (storage.Ref, error) {
	object, err := storage.OpenBlob(ctx, s, file.Ref)
	if err != nil {
		return storage.Ref{}, err
	}
	ref, err := admitObject(ctx, s, policy, file, object, seen)
	return ref, errors.Join(err, object.Close())
}

func admitObject(ctx context.Context, s storage.Store, policy string, file File, object storage.Object,
	seen *inspection) (storage.Ref, error) {
	place := file.Ref
	place.Key = FileKey(policy, file.SHA256)
	if object.Size() != file.Size {
		return storage.Ref{}, corrupt("it has %d bytes", object.Size())
	}
	sink, done, err := seen.begin(file.Name, object, file.Size)
	if err != nil {
		return storage.Ref{}, err
	}
	bytes := storage.Verified(object, file.Ref)
	if sink != nil {
		bytes = io.TeeReader(bytes, sink)
	}
	if place.Key == file.Key {
		_, err = io.Copy(io.Discard, bytes)
	} else {
		err = s.PutReader(ctx, place.Key, bytes, file.Size)
	}
	if err != nil {
		return storage.Ref{}, err
	}
	if done != nil {
		done()
	}
	return place, nil
}
