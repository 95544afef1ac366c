// Package s3 is the storage.Store in a bucket of an S3-compatible server.
//
// The server must have atomic conditional writes (If-None-Match and If-Match on PutObject): Amazon
// S3 has, versitygw has from 1.8.0 on, several others answer as if they had. Open tries them out
// and refuses a server that fails.
package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage"
)

// tryAgain bounds the tries of one operation, and the waits between them.
var tryAgain = retry.Policy{First: 100 * time.Millisecond, Most: time.Second, Tries: 5}

// Store is a storage.Store in a bucket.
type Store struct {
	where  string // for errors: bucket and prefix, no credentials
	bucket string
	prefix string // of all keys; empty or with a slash at its end

	retrying minio.Core // repeats failed requests by itself: for what is idempotent
	once     minio.Core // sends a request once: for conditional writes, where this package has to know of every attempt

	transport *http.Transport
}

var _ storage.Store = (*Store)(nil)

// Open connects to a bucket and tries out that conditional writes work there.
func Open(ctx context.Context, c Config) (*Store, error) {
	s, err := open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open S3 store in bucket %s: %w", c.Bucket, err)
	}
	return s, nil
}

// Connect is Open that asks the server nothing: who only reads learns from each read what fails.
func Connect(c Config) (*Store, error) {
	s, err := connect(c)
	if err != nil {
		return nil, fmt.Errorf("open S3 store in bucket %s: %w", c.Bucket, err)
	}
	return s, nil
}

func open(ctx context.Context, c Config) (*Store, error) {
	s, err := connect(c)
	if err != nil {
		return nil, err
	}
	err = s.prepare(ctx, c)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func connect(c Config) (*Store, error) {
	host, secure, err := c.host()
	if err != nil {
		return nil, err
	}
	c.Region = cmp.Or(c.Region, defaultRegion)
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, err
	}
	keys := newCredentials(c)
	client := func(tries int) (minio.Core, error) {
		made, err := minio.New(host, &minio.Options{Creds: keys, Secure: secure,
			Transport: transport, Region: c.Region, MaxRetries: tries})
		return minio.Core{Client: made}, err
	}
	s := &Store{where: c.Bucket, bucket: c.Bucket, transport: transport}
	if c.Prefix != "" {
		s.where, s.prefix = c.Bucket+"/"+c.Prefix, c.Prefix+"/"
	}
	if s.retrying, err = client(tryAgain.Tries); err != nil {
		return nil, err
	}
	s.once, err = client(1)
	return s, err
}

func (s *Store) prepare(ctx context.Context, c Config) error {
	exists, err := s.retrying.BucketExists(ctx, s.bucket)
	if response(err).StatusCode == http.StatusForbidden {
		// Who may not list all of the bucket is not told whether it is there; the probe tells,
		// unless the credentials are wrong.
		if tried := s.probe(ctx); response(tried).StatusCode != http.StatusForbidden {
			return tried
		}
	}
	if err != nil {
		return kind(ctx, err)
	}
	if !exists && !c.CreateBucket {
		return errors.New("the bucket does not exist; make it, or add create=true to the URL")
	}
	if !exists {
		err := s.retrying.MakeBucket(ctx, s.bucket, minio.MakeBucketOptions{Region: c.Region})
		// Another process may have made it in the meantime.
		if code := minio.ToErrorResponse(err).Code; err != nil && code != minio.BucketAlreadyOwnedByYou {
			return fmt.Errorf("create the bucket: %w", kind(ctx, err))
		}
	}
	return s.probe(ctx)
}

// Close gives the connections back.
func (s *Store) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// Stat implements storage.Store.
func (s *Store) Stat(ctx context.Context, key string) (storage.Info, error) {
	info, err := s.stat(ctx, key)
	return storage.Info{Key: key, Size: info.Size, ETag: info.ETag, Modified: info.LastModified},
		s.failed(ctx, "stat", key, err)
}

func (s *Store) stat(ctx context.Context, key string) (minio.ObjectInfo, error) {
	if err := storage.ValidateKey(key); err != nil {
		return minio.ObjectInfo{}, err
	}
	info, err := s.retrying.StatObject(ctx, s.bucket, s.prefix+key, minio.StatObjectOptions{})
	return info, kind(ctx, err)
}

// Delete implements storage.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	err := storage.ValidateKey(key)
	if err == nil {
		err = kind(ctx, s.retrying.RemoveObject(ctx, s.bucket, s.prefix+key, minio.RemoveObjectOptions{}))
	}
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return s.failed(ctx, "delete", key, err)
	}
	return nil
}

// failed says what was tried where. The client's own errors name neither
// credentials nor signatures.
func (s *Store) failed(ctx context.Context, operation, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s in bucket %s: %w", operation, key, s.where, storage.Unavailable(ctx, err))
}

// kind translates an error of the client into one of storage's kinds, where there is one.
func kind(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	response := response(err)
	switch {
	case response.Code == minio.NoSuchKey:
		return storage.ErrNotFound
	case response.Code == minio.NoSuchBucket:
		return errors.New("the bucket does not exist")
	case response.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return storage.ErrRange
	case response.StatusCode == http.StatusForbidden:
		return fmt.Errorf("the server refuses the credentials or what they ask for (%s): %w", response.Code, err)
	}
	return err
}

// response gives what the server answered; empty when it did not.
func response(err error) minio.ErrorResponse {
	var answered minio.ErrorResponse
	errors.As(err, &answered)
	return answered
}
