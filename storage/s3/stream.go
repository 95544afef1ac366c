package s3

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/rondo-rl/rondo/storage"
)

const (
	// leastPart is the size of a part in bytes: large enough for few requests, small
	// enough to be sent again.
	leastPart = 16 << 20
	// maxParts is S3's limit.
	maxParts = 10_000
	// sentAtOnce bounds the parts in memory, in bytes, unless one alone is larger.
	sentAtOnce = 64 << 20
	// cleanUp is how long an upload that failed may take to be removed when its context has ended.
	cleanUp = 10 * time.Second
)

// PutReader implements storage.Store.
func (s *Store) PutReader(ctx context.Context, key string, r io.Reader, size int64) error {
	return s.failed(ctx, "put", key, s.putReader(ctx, key, r, size, false))
}

// PutReaderIfAbsent implements storage.Store.
func (s *Store) PutReaderIfAbsent(ctx context.Context, key string, r io.Reader, size int64) error {
	err := s.putReader(ctx, key, r, size, true)
	if errors.Is(err, errCondition) {
		err = storage.ErrExists
	}
	return s.failed(ctx, "put if absent", key, err)
}

func (s *Store) putReader(ctx context.Context, key string, r io.Reader, size int64, absent bool) error {
	if err := storage.ValidateKey(key); err != nil {
		return err
	}
	if size > storage.MaxStream {
		return fmt.Errorf("%w: %d bytes (limit %d)", storage.ErrTooLarge, size, storage.MaxStream)
	}
	if absent {
		// Before r is read. The condition itself is checked by the server when the object is whole.
		switch _, err := s.stat(ctx, key); {
		case err == nil:
			return errCondition
		case !errors.Is(err, storage.ErrNotFound):
			return err
		}
	}
	source := bufio.NewReader(storage.Exactly(ctx, r, size, storage.MaxStream))
	first, last, err := readFirst(source, size)
	switch {
	case err != nil:
		return err
	case !last:
		return s.putParts(ctx, key, first, source, size, absent)
	case absent:
		_, err = s.putIf(ctx, key, "", first)
		return err
	}
	_, err = s.upload(ctx, s.retrying, key, first, minio.PutObjectOptions{})
	return kind(ctx, err)
}

// partSize is the size of a part of an object of size bytes. Where nobody knows the size, -1, parts
// grow, so that maxParts hold MaxStream.
func partSize(number int, size int64) int64 {
	if size >= 0 {
		return max(leastPart, (size+maxParts-1)/maxParts)
	}
	return leastPart << ((number - 1) / 1800)
}

// readFirst reads the first part, with no more memory than a small object takes.
func readFirst(r *bufio.Reader, size int64) (part []byte, last bool, err error) {
	length := partSize(1, size)
	if size >= 0 {
		return readPart(r, make([]byte, min(length, size)))
	}
	if part, err = io.ReadAll(io.LimitReader(r, length)); err != nil {
		return nil, false, err
	}
	_, err = r.Peek(1)
	if errors.Is(err, io.EOF) {
		return part, true, nil
	}
	return part, false, err
}

// readPart reads a part into a buffer, and tells whether it is the last one.
func readPart(r *bufio.Reader, buffer []byte) (part []byte, last bool, err error) {
	n, err := io.ReadFull(r, buffer)
	if err == nil {
		_, err = r.Peek(1)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return buffer[:n], true, nil
	}
	return buffer[:n], false, err
}

// multipart is an upload in parts.
type multipart struct {
	store  *Store
	key    string // in the bucket
	id     string
	nonce  string // tells its object from others'
	absent bool   // the condition

	memory *semaphore.Weighted // bytes of parts that are read and sent

	mu    sync.Mutex
	parts []minio.CompletePart
	sent  [][]byte // buffers to read into again
}

// putParts writes an object of more than one part. What was sent is removed again when it fails.
func (s *Store) putParts(ctx context.Context, key string, first []byte, r *bufio.Reader,
	size int64, absent bool) error {
	u := &multipart{store: s, key: s.prefix + key, nonce: rand.Text(), absent: absent,
		memory: semaphore.NewWeighted(sentAtOnce)}
	var err error
	options := minio.PutObjectOptions{UserMetadata: map[string]string{nonceHeader: u.nonce}}
	if u.id, err = s.retrying.NewMultipartUpload(ctx, s.bucket, u.key, options); err != nil {
		return kind(ctx, err)
	}
	if err = u.sendAll(ctx, first, r, size); err == nil {
		err = u.complete(ctx, key)
	}
	if err == nil {
		return nil
	}
	err = kind(ctx, err)
	// The caller may be gone, and a process that ends now leaves the rest to RemoveUnfinished.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	_ = s.retrying.AbortMultipartUpload(ctx, s.bucket, u.key, u.id)
	return err
}

// sendAll sends the parts, several at once.
func (u *multipart) sendAll(ctx context.Context, part []byte, r *bufio.Reader, size int64) error {
	group, sending := errgroup.WithContext(ctx)
	for number, last := 1, false; ; number++ {
		weight := min(partSize(number, size), sentAtOnce)
		if u.memory.Acquire(sending, weight) != nil {
			break // the group knows why
		}
		if number > 1 {
			var err error
			if part, last, err = u.readPart(r, number, size); err != nil {
				group.Go(func() error { return err }) // ends the others
				break
			}
		}
		read := part // the next one is read meanwhile
		group.Go(func() error {
			defer u.memory.Release(weight)
			return u.send(sending, number, read)
		})
		if last {
			break
		}
	}
	return cmp.Or(group.Wait(), ctx.Err())
}

// readPart reads a part into a buffer that was sent, or a new one.
func (u *multipart) readPart(r *bufio.Reader, number int, size int64) (part []byte, last bool, err error) {
	if number > maxParts {
		return nil, false, fmt.Errorf("%w: more than %d parts", storage.ErrTooLarge, maxParts)
	}
	length := int(partSize(number, size))
	u.mu.Lock()
	var buffer []byte
	if n := len(u.sent); n > 0 {
		buffer, u.sent = u.sent[n-1], u.sent[:n-1]
	}
	u.mu.Unlock()
	if cap(buffer) < length {
		buffer = make([]byte, length)
	}
	return readPart(r, buffer[:length])
}

// send sends a part. A part that is sent twice is there once.
func (u *multipart) send(ctx context.Context, number int, part []byte) error {
	sent, err := u.store.retrying.PutObjectPart(ctx, u.store.bucket, u.key, u.id, number,
		bytes.NewReader(part), int64(len(part)),
		minio.PutObjectPartOptions{Sha256Hex: storage.Digest(part), DisableContentSha256: true})
	if err != nil {
		return fmt.Errorf("part %d: %w", number, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts, u.sent = append(u.parts, minio.CompletePart{PartNumber: number, ETag: sent.ETag}), append(u.sent, part)
	return nil
}

// complete makes the object of its parts. As in putIf, an answer may be lost: then the nonce tells
// whether the object there is this one.
func (u *multipart) complete(ctx context.Context, key string) (err error) {
	slices.SortFunc(u.parts, func(a, b minio.CompletePart) int { return cmp.Compare(a.PartNumber, b.PartNumber) })
	options := minio.PutObjectOptions{}
	if u.absent {
		options.SetMatchETagExcept("*")
	}
	lost := false
	for attempt := range tryAgain.Tries {
		if !tryAgain.Wait(ctx, attempt) {
			return ctx.Err()
		}
		if u.absent && !lost {
			// For servers that do not know the condition here; they let both of two writers
			// through that come at once.
			if _, err := u.store.stat(ctx, key); !errors.Is(err, storage.ErrNotFound) {
				return cmp.Or(err, errCondition)
			}
		}
		_, err = u.store.once.CompleteMultipartUpload(ctx, u.store.bucket, u.key, u.id, u.parts, options)
		code := response(err).Code
		switch {
		case err == nil:
			return nil
		case refused(err) && !lost:
			return errCondition
		case refused(err), code == minio.NoSuchUpload && lost:
			_, err := u.store.settle(ctx, key, "", u.nonce)
			return err
		case code == conditionalConflict:
			// Another write of the key was under way.
		case response(err).StatusCode == http.StatusNotImplemented && u.absent:
			options = minio.PutObjectOptions{}
		case repeatable(err):
			lost = true
		default:
			return err
		}
	}
	if lost {
		if _, settled := u.store.settle(ctx, key, "", u.nonce); settled == nil ||
			u.absent && errors.Is(settled, errCondition) {
			return settled
		}
	}
	return fmt.Errorf("%w after %d attempts: %w", errUnknown, tryAgain.Tries, err)
}

// RemoveUnfinished implements storage.Store.
func (s *Store) RemoveUnfinished(ctx context.Context, before time.Time) (removed int, err error) {
	for upload := range s.retrying.ListIncompleteUploads(ctx, s.bucket, s.prefix, true) {
		if err = upload.Err; err == nil {
			var gone bool
			gone, err = s.removeUnfinished(ctx, upload, before)
			if gone {
				removed++
			}
		}
		if err != nil {
			return removed, s.failed(ctx, "remove unfinished objects", "", kind(ctx, err))
		}
	}
	return removed, ctx.Err()
}

func (s *Store) removeUnfinished(ctx context.Context, upload minio.ObjectMultipartInfo,
	before time.Time) (bool, error) {
	if upload.Initiated.After(before) {
		return false, nil
	}
	for marker, more := 0, true; more; {
		page, err := s.retrying.ListObjectParts(ctx, s.bucket, upload.Key, upload.UploadID, marker, 1000)
		if response(err).StatusCode == http.StatusForbidden {
			break // then its beginning counts
		}
		if err != nil {
			return false, ended(err)
		}
		for _, part := range page.ObjectParts {
			if part.LastModified.After(before) {
				return false, nil
			}
		}
		marker, more = page.NextPartNumberMarker, page.IsTruncated
	}
	err := s.retrying.AbortMultipartUpload(ctx, s.bucket, upload.Key, upload.UploadID)
	return err == nil, ended(err)
}

// ended lets pass that an upload was completed or removed meanwhile.
func ended(err error) error {
	if response(err).Code == minio.NoSuchUpload {
		return nil
	}
	return err
}
