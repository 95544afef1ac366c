package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/rondo-rl/rondo/storage"
)

const (
	// nonceHeader is the metadata that tells a writer whether the object that is there is its own.
	nonceHeader = "Rondo-Nonce"

	conditionalConflict = "ConditionalRequestConflict"
)

var (
	// errCondition says that the server has checked the condition and refused.
	errCondition = errors.New("the condition does not hold")
	errUnknown   = errors.New("the outcome is unknown")
)

// Put implements storage.Store.
func (s *Store) Put(ctx context.Context, key string, data []byte) error {
	err := checkWrite(key, data, storage.MaxObject)
	if err == nil {
		_, err = s.upload(ctx, s.retrying, key, data, minio.PutObjectOptions{})
		err = kind(ctx, err)
	}
	return s.failed(ctx, "put", key, err)
}

// PutIfAbsent implements storage.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	err := checkWrite(key, data, storage.MaxObject)
	if err == nil {
		_, err = s.putIf(ctx, key, "", data)
	}
	if errors.Is(err, errCondition) {
		err = storage.ErrExists
	}
	return s.failed(ctx, "put if absent", key, err)
}

// CompareAndSwap implements storage.Store.
func (s *Store) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	err := checkWrite(key, data, storage.MaxPointer)
	etag := ""
	if err == nil {
		etag, err = s.putIf(ctx, key, old, data)
	}
	if errors.Is(err, errCondition) {
		err = storage.ErrConflict
	}
	return etag, s.failed(ctx, "compare and swap", key, err)
}

func checkWrite(key string, data []byte, limit int) error {
	if len(data) > limit {
		return fmt.Errorf("%w: %d bytes (limit %d)", storage.ErrTooLarge, len(data), limit)
	}
	return storage.ValidateKey(key)
}

// putIf writes an object if the present one has the ETag old, or if there is
// none (old ""): errCondition.
//
// When an answer is lost, the write may have happened, and the next attempt then meets its own
// object. So each call leaves a nonce with its object, and after a lost answer a refusal counts
// only if the object there carries another one.
func (s *Store) putIf(ctx context.Context, key, old string, data []byte) (etag string, err error) {
	nonce, lost := rand.Text(), false
	for attempt := range tryAgain.Tries {
		if !tryAgain.Wait(ctx, attempt) {
			return "", ctx.Err()
		}
		etag, err = s.putOnce(ctx, key, old, nonce, data)
		switch {
		case err == nil:
			return etag, nil
		case refused(err) && !lost:
			return "", errCondition
		case refused(err):
			return s.settle(ctx, key, old, nonce)
		case response(err).Code == conditionalConflict:
			// Another write was under way, and this one did not happen.
		case repeatable(err):
			lost = true
		default:
			return "", kind(ctx, err)
		}
	}
	if !lost {
		return "", kind(ctx, err)
	}
	// A server that refuses a large body may close the connection before its
	// answer is read, each time.
	if etag, settled := s.settle(ctx, key, old, nonce); settled == nil ||
		old == "" && errors.Is(settled, errCondition) {
		return etag, settled
	}
	return "", fmt.Errorf("%w after %d attempts: %w", errUnknown, tryAgain.Tries, kind(ctx, err))
}

func (s *Store) putOnce(ctx context.Context, key, old, nonce string, data []byte) (string, error) {
	options := minio.PutObjectOptions{UserMetadata: map[string]string{nonceHeader: nonce}}
	if old == "" {
		options.SetMatchETagExcept("*")
	} else {
		options.SetMatchETag(old)
	}
	return s.upload(ctx, s.once, key, data, options)
}

// upload sends an object in one request, whatever its size: in a multipart upload the client drops
// conditions without a word and overwrites. Its checksum is in the signature; the streaming
// signature that the client would use otherwise breaks on empty objects.
func (s *Store) upload(ctx context.Context, client minio.Core, key string, data []byte,
	options minio.PutObjectOptions) (etag string, err error) {
	options.DisableMultipart, options.DisableContentSha256 = true, true
	info, err := client.PutObject(ctx, s.bucket, s.prefix+key, bytes.NewReader(data), int64(len(data)),
		"", storage.Digest(data), options)
	return info.ETag, err
}

// settle finds out whether a write whose answer was lost is the one that is there.
func (s *Store) settle(ctx context.Context, key, old, nonce string) (etag string, err error) {
	info, err := s.stat(ctx, key)
	switch {
	case err == nil && info.UserMetadata[nonceHeader] == nonce:
		return info.ETag, nil
	case err != nil:
		return "", fmt.Errorf("%w: an answer was lost, and then: %w", errUnknown, err)
	case old == "" || info.ETag == old:
		// Somebody else's object was there first, or nothing was written.
		return "", errCondition
	}
	// Another writer came after or instead of this one: which of the two, nobody can tell.
	return "", fmt.Errorf("%w: an answer was lost, and the object has changed since", errUnknown)
}

// refused says that the server has checked the condition; If-Match on an absent object answers 404.
func refused(err error) bool {
	answer := response(err)
	return answer.StatusCode == http.StatusPreconditionFailed || answer.Code == minio.PreconditionFailed ||
		answer.Code == minio.NoSuchKey
}

// repeatable says that a request may succeed next time: no answer came, or
// one that asks for patience.
func repeatable(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	status := response(err).StatusCode
	return status == 0 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500
}
