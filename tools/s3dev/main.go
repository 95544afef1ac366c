// Command s3dev serves a directory as an S3-compatible object store, for tests and for
// trying Rondo on one machine:
//
//	s3dev -dir /tmp/objects -addr 127.0.0.1:0 -bucket rondo
//
// It runs versitygw with the directory as its back end. Credentials come from AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY. When it serves, it writes one line to standard output: its endpoint,
// http://127.0.0.1:40123. It ends with SIGINT or SIGTERM, or when its standard input, if that is a
// pipe, ends: so it never outlives the test that started it.
//
// The directory's file system needs extended attributes. Written objects are not synced to the
// disk: use it for nothing that must survive a power cut.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

const (
	connections = 1024
	startLimit  = 10 * time.Second
	healthPath  = "/healthz"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("s3dev: ")
	dir := flag.String("dir", "", "directory that holds the objects; it must exist")
	addr := flag.String("addr", "127.0.0.1:0", "address to serve on; port 0 takes a free one")
	bucket := flag.String("bucket", "rondo", "bucket to make if it is not there")
	iam := flag.String("iam", "",
		"directory that holds the server's users; without it there is only the one of the environment")
	sidecar := flag.String("sidecar", "",
		"directory for what the server notes of objects and buckets; without it extended attributes of the files, for which ext4 has some 4 KB")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, *addr, *bucket, *iam, *sidecar); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir, addr, bucket, iam, sidecar string) (err error) {
	access, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	switch {
	case dir == "":
		return errors.New("-dir is missing")
	case access == "" || secret == "":
		return errors.New("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to the credentials that clients shall use")
	case len(bucket) < 3:
		return fmt.Errorf("bucket %q: a name has at least 3 characters", bucket)
	}
	if err := os.MkdirAll(filepath.Join(dir, bucket), 0o755); err != nil {
		return err
	}
	for _, path := range []*string{&iam, &sidecar} { // the back end changes the working directory
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	addr, err = freeAddress(addr)
	if err != nil {
		return err
	}
	// The gateway prints remarks of its own; standard output is for the endpoint alone.
	output := os.Stdout
	os.Stdout = os.Stderr
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go endWithInput(cancel)
	served := make(chan error, 1)
	go func() { served <- serve(ctx, dir, addr, access, secret, iam, sidecar) }()
	if err := waitReady(ctx, "http://"+addr+healthPath, served); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(output, "http://"+addr); err != nil {
		return err
	}
	if err := <-served; err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func serve(ctx context.Context, dir, addr, access, secret, iam, sidecar string) error {
	var notes meta.MetadataStorer = meta.XattrMeta{}
	if sidecar != "" {
		beside, err := meta.NewSideCar(sidecar)
		if err != nil {
			return fmt.Errorf("directory %s: %w", sidecar, err)
		}
		notes = beside
	}
	backend, err := posix.New(dir, notes, posix.PosixOpts{Concurrency: connections, SideCarDir: sidecar})
	if err != nil {
		return fmt.Errorf("directory %s: %w", dir, err)
	}
	return embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
		RootUserAccess: access, RootUserSecret: secret, IAMDir: iam, Ports: []string{addr}, HealthPath: healthPath,
		MaxConnections: connections, MaxRequests: connections, MultipartMaxParts: 10000, Quiet: true, KeepAlive: true,
	})
}

// freeAddress replaces port 0 by a free port: the gateway does not tell which one it got.
func freeAddress(addr string) (string, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

func waitReady(ctx context.Context, url string, served <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		if response, err := http.Get(url); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-served:
			return fmt.Errorf("it did not start: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("it did not answer at %s: %w", url, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// endWithInput ends the server with the process at the other end of a pipe.
func endWithInput(end func()) {
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}
}
