// Package registry reads container images from the registries that hold them, without a container
// engine. It speaks the distribution protocol of the Open Container Initiative, and shows the keys
// that `docker login` left.
package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/errcode"
	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/rondo-rl/rondo/sandbox/internal/archive"
)

// Bounds of what an image says of itself.
const (
	maxPadding  = 64 << 20 // bytes behind the end of a layer's archive
	maxDocument = 4 << 20  // bytes of a manifest, an index or a configuration
	maxLayers   = 512
)

// Image is one that a registry has, for this machine's processor.
type Image struct {
	// IDs are the digests under which engines know it: that of its manifest, by which it
	// is found when its name has moved on, that of its configuration, and that of the
	// index of all processors, where there is one. Which of them an engine calls the
	// image's depends on its store.
	IDs     []string
	Env     []string // key=value
	Workdir string   // "" for none

	repository *remote.Repository
	layers     []ocispec.Descriptor // the lowest first
	plain      []digest.Digest      // of each layer when it is not compressed, by the configuration
}

// Find asks the registry that a name names for an image: for that of a digest of IDs, if
// the registry knows it, and else for what the name is there now. A name without a
// registry is Docker Hub's.
func Find(ctx context.Context, name, id string) (*Image, error) {
	reference, err := parse(name)
	if err != nil {
		return nil, err
	}
	repository, err := connect(reference)
	if err != nil {
		return nil, err
	}
	top, err := repository.Resolve(ctx, cmp.Or(id, reference.Reference))
	if id != "" && errors.Is(err, errdef.ErrNotFound) { // the digest of a configuration names nothing there
		top, err = repository.Resolve(ctx, reference.Reference)
	}
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, fmt.Errorf("the registry %s has none of this name: push it there, or load it into a Docker engine on each machine that runs its tasks", reference.Registry)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the registry %s: %w", reference.Registry, withoutAddress(err))
	}
	platform := ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}
	one, err := oras.Resolve(ctx, repository, top.Digest.String(),
		oras.ResolveOptions{TargetPlatform: &platform, MaxMetadataBytes: maxDocument})
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, fmt.Errorf("the registry %s has none for linux/%s", reference.Registry, runtime.GOARCH)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the registry %s: %w", reference.Registry, withoutAddress(err))
	}
	image := &Image{repository: repository}
	if err := image.read(ctx, one); err != nil {
		return nil, err
	}
	if top.Digest != one.Digest {
		image.IDs = append(image.IDs, top.Digest.String())
	}
	return image, nil
}

// parse completes a name as container engines do.
func parse(name string) (registry.Reference, error) {
	host, rest, whole := strings.Cut(name, "/")
	if !whole || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host, rest = "docker.io", name
	}
	if host == "docker.io" && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	reference, err := registry.ParseReference(host + "/" + rest)
	if err == nil && reference.Reference == "" {
		reference.Reference = "latest"
	}
	return reference, err
}

func connect(reference registry.Reference) (*remote.Repository, error) {
	keys, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the keys of `docker login`: %w", err)
	}
	host, _, err := net.SplitHostPort(reference.Registry)
	if err != nil {
		host = reference.Registry
	}
	address := net.ParseIP(host)
	client := &auth.Client{Client: retry.DefaultClient, Cache: auth.NewCache(),
		Credential: credentials.Credential(keys)}
	client.SetUserAgent("rondo")
	return &remote.Repository{
		Reference: reference,
		Client:    client,
		PlainHTTP: host == "localhost" || address != nil && address.IsLoopback(), // as engines do

		MaxMetadataBytes: maxDocument,
	}, nil
}

// withoutAddress leaves out the address that a request failed at: registries send
// clients on to signed ones.
func withoutAddress(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	if refused, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		return fmt.Errorf("status %d: %.200q", refused.StatusCode, refused.Errors.Error())
	}
	if text := err.Error(); signed.MatchString(text) {
		return fmt.Errorf("%.500s", signed.ReplaceAllString(text, "$1"))
	}
	return err
}

var signed = regexp.MustCompile(`(https?://[^\s?"]*)\?[^\s"]*`)

// read reads manifest and configuration.
func (i *Image) read(ctx context.Context, manifest ocispec.Descriptor) error {
	var listed ocispec.Manifest
	if err := i.document(ctx, manifest, &listed); err != nil {
		return fmt.Errorf("its manifest: %w", err)
	}
	if len(listed.Layers) > maxLayers {
		return fmt.Errorf("its manifest: %d layers, at most %d", len(listed.Layers), maxLayers)
	}
	var described ocispec.Image
	if err := i.document(ctx, listed.Config, &described); err != nil {
		return fmt.Errorf("its configuration: %w", err)
	}
	i.IDs, i.layers = []string{manifest.Digest.String(), listed.Config.Digest.String()}, listed.Layers
	// an engine's digest of an image is that of its configuration
	if i.plain = described.RootFS.DiffIDs; len(i.plain) != len(i.layers) {
		return fmt.Errorf("its configuration has %d layers, its manifest %d", len(i.plain), len(i.layers))
	}
	i.Env, i.Workdir = described.Config.Env, described.Config.WorkingDir
	return nil
}

// document reads a JSON document of the digest that is asked for.
func (i *Image) document(ctx context.Context, wanted ocispec.Descriptor, into any) error {
	if wanted.Size > maxDocument {
		return fmt.Errorf("%d bytes, at most %d", wanted.Size, maxDocument)
	}
	text, err := content.FetchAll(ctx, i.repository, wanted)
	if err != nil {
		return withoutAddress(err)
	}
	return json.Unmarshal(text, into)
}

// Unpack writes the image's tree below root. It checks each layer's digest at the layer's end, so
// after an error the tree is not to be used.
func (i *Image) Unpack(ctx context.Context, root *os.Root) error {
	tree := archive.NewImageTree(root)
	for number := range i.layers {
		if err := i.unpack(ctx, number, tree); err != nil {
			return fmt.Errorf("layer %d of %d: %w", number+1, len(i.layers), withoutAddress(err))
		}
	}
	return tree.Complete(i.Workdir)
}

func (i *Image) unpack(ctx context.Context, number int, tree *archive.ImageTree) error {
	layer, sum := i.layers[number], digest.SHA256.Digester()
	source := &download{ctx: ctx, repository: i.repository, layer: layer}
	defer source.Close()
	verified := content.NewVerifyReader(source, layer)
	plain, err := decompress(layer.MediaType, verified)
	if err != nil {
		return err
	}
	defer plain.Close()
	both := io.TeeReader(plain, sum.Hash())
	if err := tree.Unpack(ctx, both); err != nil {
		return err
	}
	// what is behind the archive's end belongs to the layer
	for _, rest := range []io.Reader{io.LimitReader(both, maxPadding), verified} {
		if _, err := io.Copy(io.Discard, rest); err != nil {
			return err
		}
	}
	if err := verified.Verify(); err != nil {
		return err
	}
	if got := sum.Digest(); got != i.plain[number] {
		return fmt.Errorf("it is %s, and the image's configuration says %.100q", got, i.plain[number])
	}
	return nil
}

// decompress reads a layer by its media type. OCI and Docker name the same formats.
func decompress(mediaType string, from io.Reader) (io.ReadCloser, error) {
	switch {
	case strings.HasSuffix(mediaType, ".tar+gzip"), strings.HasSuffix(mediaType, ".tar.gzip"):
		return gzip.NewReader(from)
	case strings.HasSuffix(mediaType, ".tar+zstd"), strings.HasSuffix(mediaType, ".tar.zstd"):
		plain, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxWindow))
		if err != nil {
			return nil, err
		}
		return plain.IOReadCloser(), nil
	case strings.HasSuffix(mediaType, ".tar"):
		return io.NopCloser(from), nil
	}
	return nil, fmt.Errorf("its media type %.100q is none that can be unpacked", mediaType)
}

// maxWindow bounds what a decoder of zstd keeps.
const maxWindow = 128 << 20

// download reads a layer. Where the connection breaks off, it goes on behind what it has read.
type download struct {
	ctx        context.Context
	repository *remote.Repository
	layer      ocispec.Descriptor
	body       io.ReadCloser
	read       int64
	broken     int // times in a row without a byte between them
}

const maxBroken = 5

func (d *download) Read(p []byte) (n int, err error) {
	if d.body == nil {
		if err := d.open(); err != nil {
			return 0, err
		}
	}
	n, err = d.body.Read(p)
	d.read += int64(n)
	if n > 0 {
		d.broken = 0
	}
	if err == nil || err == io.EOF && d.read >= d.layer.Size || d.ctx.Err() != nil {
		return n, err
	}
	if d.broken++; d.broken > maxBroken {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}
	d.Close()
	return n, nil
}

func (d *download) open() error {
	body, err := d.repository.Blobs().Fetch(d.ctx, d.layer)
	if err != nil {
		return err
	}
	d.body = body
	if d.read == 0 {
		return nil
	}
	seeker, ok := body.(io.Seeker)
	if !ok {
		return errors.New("the connection broke off, and the registry sends no parts of a layer")
	}
	_, err = seeker.Seek(d.read, io.SeekStart)
	return err
}

func (d *download) Close() error {
	if d.body == nil {
		return nil
	}
	body := d.body
	d.body = nil
	return body.Close()
}
