package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Ref names an immutable object and what it must contain. Events carry Refs
// in place of large bodies.
type Ref struct {
	Key    string `json:"ref"`
	SHA256 string `json:"sha256"` // 64 lower-case hexadecimal digits
	Size   int64  `json:"size"`   // bytes
}

// Validate checks the form of a Ref, not the object: ErrKey or ErrCorrupt, since a
// Ref may come from outside.
func (r Ref) Validate() error {
	if err := ValidateKey(r.Key); err != nil {
		return err
	}
	digest, err := hex.DecodeString(r.SHA256)
	if err != nil || len(digest) != sha256.Size || strings.ToLower(r.SHA256) != r.SHA256 {
		return fmt.Errorf("ref %s: %w: sha256 %.80q is not 64 lower-case hexadecimal digits", r.Key, ErrCorrupt,
			r.SHA256)
	}
	if r.Size < 0 || r.Size > MaxStream {
		return fmt.Errorf("ref %s: %w: size %d is not within 0 and %d", r.Key, ErrCorrupt, r.Size, int64(MaxStream))
	}
	return nil
}

// Check compares data with the Ref's size and digest; a difference is an ErrCorrupt.
func (r Ref) Check(data []byte) error {
	if int64(len(data)) != r.Size {
		return fmt.Errorf("%s: %w: %d bytes instead of %d", r.Key, ErrCorrupt, len(data), r.Size)
	}
	if Digest(data) != r.SHA256 {
		// The digest that it has is not told: who may name an object need
		// not be allowed to read it.
		return fmt.Errorf("%s: %w: its sha256 is not %s", r.Key, ErrCorrupt, r.SHA256)
	}
	return nil
}

// Digest is the SHA-256 of data in lower-case hexadecimal digits.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// BlobKey is the key of the blob with a digest: blobs/sha256/ab/abcdef….
func BlobKey(digest string) string {
	return "blobs/sha256/" + digest[:2] + "/" + digest
}

// PutBlob stores data under its own digest, and uploads nothing when the blob was put there lately.
func PutBlob(ctx context.Context, s Store, data []byte) (Ref, error) {
	digest := Digest(data)
	return putRef(ctx, s, Ref{Key: BlobKey(digest), SHA256: digest, Size: int64(len(data))}, data)
}

// PutNamed stores data under keyPrefix-<first 16 digits of its digest>.ext, a name for people that
// is still unique to the content: runs/<run>/trajectories/<rollout>-<digest>.arrow. Repeating it
// soon with the same data uploads nothing.
func PutNamed(ctx context.Context, s Store, keyPrefix, ext string, data []byte) (Ref, error) {
	return putRef(ctx, s, namedRef(keyPrefix, ext, data), data)
}

func namedRef(keyPrefix, ext string, data []byte) Ref {
	digest := Digest(data)
	return Ref{Key: keyPrefix + "-" + digest[:16] + "." + strings.TrimPrefix(ext, "."),
		SHA256: digest, Size: int64(len(data))}
}

// PutPacked is PutNamed for small objects of which many are put at once, such as trajectories: a
// Packer keeps them together.
func PutPacked(ctx context.Context, s Store, keyPrefix, ext string, data []byte) (Ref, error) {
	if packer, can := s.(Packer); can {
		ref := namedRef(keyPrefix, ext, data)
		return ref, packer.PutPacked(ctx, ref.Key, data)
	}
	return PutNamed(ctx, s, keyPrefix, ext, data)
}

// RefreshAfter is the age from which on an object that is there already is written again, so
// that it is young: who collects garbage spares what is young, as the event that will name it
// may not be on the log yet.
const RefreshAfter = time.Hour

func putRef(ctx context.Context, s Store, ref Ref, data []byte) (Ref, error) {
	if there, err := isYoung(ctx, s, ref); there || err != nil {
		return ref, err
	}
	return ref, s.Put(ctx, ref.Key, data)
}

// isYoung reports whether a young object of the right size has the content's own key, so that
// nothing has to be uploaded. One of another size is what a store that lost power left
// behind; it is written again.
func isYoung(ctx context.Context, s Store, ref Ref) (bool, error) {
	info, err := s.Stat(ctx, ref.Key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, err
	}
	return err == nil && info.Size == ref.Size && time.Since(info.Modified) < RefreshAfter, nil
}

// GetBlob reads what a Ref names and verifies its digest: ErrNotFound, or ErrCorrupt when the bytes
// are others. It reads no more than the Ref's size, whatever is there: who may write to a store
// must not fill its readers' memory. ErrTooLarge above MaxObject; see ReadBlob.
func GetBlob(ctx context.Context, s Store, ref Ref) ([]byte, error) {
	if err := ref.Validate(); err != nil {
		return nil, err
	}
	data, err := s.GetRange(ctx, ref.Key, 0, ref.Size)
	if errors.Is(err, ErrRange) {
		return nil, fmt.Errorf("%s: %w: fewer than %d bytes", ref.Key, ErrCorrupt, ref.Size)
	}
	if err != nil {
		return nil, err
	}
	if err := ref.Check(data); err != nil {
		return nil, err
	}
	return data, nil
}
