package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// mend makes again what a power cut left without its settings, and the server does not serve: a
// stream over the messages that it has, with the settings that the options give it. Consumers that
// are not served go whole, with what they had acknowledged: they are made again by who uses them,
// and deliver again what was handled. It says which streams it made.
func (s *Server) mend(ctx context.Context, o Options) (mended []string, err error) {
	err = s.each(func(js jetstream.JetStream, folder string) error {
		name := filepath.Base(folder)
		cfg, ours := o.settings(name)
		stream, err := js.Stream(ctx, name)
		switch {
		case err == nil && ours && cfg.Compression != stream.CachedInfo().Config.Compression &&
			cfg.Compression == jetstream.NoCompression:
			now := stream.CachedInfo().Config
			now.Compression = jetstream.NoCompression
			if _, err := js.UpdateStream(ctx, now); err != nil {
				return err
			}
			return errors.Join(mendConsumers(ctx, stream, filepath.Join(folder, "obs")), s.Persist(name))
		case err == nil:
			return mendConsumers(ctx, stream, filepath.Join(folder, "obs"))
		case errors.Is(err, jetstream.ErrStreamNotFound) && ours:
			mended = append(mended, name)
			return s.mendStream(ctx, js, folder, cfg)
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return nil
		}
		return err
	})
	return mended, err
}

// settings are those of a stream, at this durability: a file that is full is compressed into
// another one, which takes its place before it is synced. Only where every write is synced does a
// power cut leave one of the two.
func (o Options) settings(name string) (jetstream.StreamConfig, bool) {
	cfg, ours := o.Streams(name)
	if o.SyncInterval > 0 {
		cfg.Compression = jetstream.NoCompression
	}
	return cfg, ours
}

// each calls f with the folder of every stream.
func (s *Server) each(f func(js jetstream.JetStream, folder string) error) error {
	folders, err := filepath.Glob(filepath.Join(s.options.StoreDir, "jetstream", "*", "streams", "*"))
	if err != nil || len(folders) == 0 {
		return err
	}
	nc, err := s.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		name := filepath.Base(folder)
		if strings.HasPrefix(name, ".") {
			continue // being deleted
		}
		if err := f(js, folder); err != nil {
			return fmt.Errorf("mend stream %s in %s: %w", name, s.options.StoreDir, err)
		}
	}
	return nil
}

// mendStream has the server make a stream where its messages lie: it takes them in.
func (s *Server) mendStream(ctx context.Context, js jetstream.JetStream, folder string,
	cfg jetstream.StreamConfig) error {
	for _, name := range []string{metaFile, sumFile, "obs"} {
		if err := os.RemoveAll(filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	if _, err := js.CreateStream(ctx, cfg); err != nil {
		return err
	}
	return s.Persist(cfg.Name)
}

func mendConsumers(ctx context.Context, stream jetstream.Stream, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) == 0 {
		return nil // the server makes the folder with the first consumer
	}
	var served []string
	names := stream.ConsumerNames(ctx)
	for name := range names.Name() {
		served = append(served, name)
	}
	if err := names.Err(); err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(served, e.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(folder, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
