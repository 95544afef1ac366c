// Package open opens the object store that a URL names.
package open

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/storage/s3"
)

// Open opens a directory (file:///var/lib/rondo or a plain path) or a bucket
// (s3://bucket/prefix?endpoint=http://host:port&region=eu-west-1&create=true, credentials in
// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; see s3.ParseURL).
func Open(ctx context.Context, location string) (storage.Store, error) {
	scheme, _, hasScheme := strings.Cut(location, "://")
	switch {
	case location == "":
		return nil, fmt.Errorf("open store: no location; give a directory, file:///dir or s3://bucket/prefix")
	case !hasScheme:
		return openDir(location)
	case scheme == "file":
		return openFile(location)
	case scheme == "s3":
		return openBucket(ctx, location)
	}
	return nil, fmt.Errorf("open store: unknown scheme %q; give a directory, file:///dir or s3://bucket/prefix", scheme)
}

// ForReading is Open for who only reads. It does not ask a bucket whether it is there, so that what
// needs no object works during an outage, too.
func ForReading(ctx context.Context, location string) (storage.Store, error) {
	if !strings.HasPrefix(location, "s3://") {
		return Open(ctx, location)
	}
	config, err := s3.ParseURL(location)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s, err := s3.Connect(config)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func openFile(location string) (storage.Store, error) {
	u, err := url.Parse(location)
	if err != nil || u.Host != "" && u.Host != "localhost" || u.Path == "" || u.RawQuery != "" {
		return nil, fmt.Errorf("open store %q: want file:///absolute/path", location)
	}
	return openDir(u.Path)
}

// The two functions below keep a nil pointer from becoming a Store that is not nil.

func openDir(path string) (storage.Store, error) {
	s, err := dir.Open(path)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func openBucket(ctx context.Context, location string) (storage.Store, error) {
	config, err := s3.ParseURL(location)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s, err := s3.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	return s, nil
}
