package s3

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/storage"
)

const (
	// probeRounds of probeWriters each: a server that checks and writes in two steps lets two of
	// them through in about every second round.
	probeRounds, probeWriters = 3, 8
	probePrefix               = "rondo-probe/"
)

// probe tries out that conditional writes are atomic: several servers ignore the condition or check
// it before they take a lock, and would lose updates later without a word.
func (s *Store) probe(ctx context.Context) error {
	for range probeRounds {
		if err := s.probeRound(ctx, probePrefix+rand.Text()); err != nil {
			return fmt.Errorf("try out conditional writes: %w", err)
		}
	}
	return nil
}

func (s *Store) probeRound(ctx context.Context, key string) (err error) {
	defer func() { err = errors.Join(err, s.Delete(ctx, key)) }()
	if err := s.race(ctx, key, ""); err != nil {
		return err
	}
	_, etag, err := s.Load(ctx, key)
	if err != nil {
		return err
	}
	if err := s.race(ctx, key, etag); err != nil {
		return err
	}
	switch _, err := s.CompareAndSwap(ctx, key, etag, []byte("late")); {
	case err == nil:
		return errors.New("the server ignores If-Match; it cannot hold Rondo's objects")
	case !errors.Is(err, storage.ErrConflict):
		return err
	}
	return nil
}

// race lets several writers do the same swap at once; one must win.
func (s *Store) race(ctx context.Context, key, etag string) error {
	var wins atomic.Int32
	var writers errgroup.Group
	for writer := range probeWriters {
		writers.Go(func() error {
			_, err := s.CompareAndSwap(ctx, key, etag, fmt.Appendf(nil, "%d %s", writer, etag))
			switch {
			case err == nil:
				wins.Add(1)
			case !errors.Is(err, storage.ErrConflict):
				return err
			}
			return nil
		})
	}
	if err := writers.Wait(); err != nil {
		return err
	}
	if n := wins.Load(); n != 1 {
		return fmt.Errorf("%d of %d concurrent conditional writes succeeded, want 1: the server's conditional writes are not atomic", n, probeWriters)
	}
	return nil
}
