package fleet

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/rondo-rl/rondo/events/yamltext"
	"github.com/rondo-rl/rondo/wording"
)

// Keys are the keys of inference servers, judges and servers of tools. A run file names no key:
// which one a server is shown follows from its URL alone, so that who opens runs can send no
// key to a host of his own.
type Keys struct {
	everywhere string
	list       []scopedKey
}

type scopedKey struct {
	scope *url.URL
	runs  []string // patterns of the runs that may use it; none is all
	key   string
}

// Everywhere is one key that is shown to every server that a run names, for deployments
// whose runs are all trusted.
func Everywhere(key string) Keys {
	wording.Conceal(key)
	return Keys{everywhere: strings.TrimSpace(key)}
}

// maxKeys bounds a file of keys, maxKey a key in bytes.
const (
	maxKeys = 1000
	maxKey  = 64 << 10
)

// ReadKeys reads a YAML file of keys, each with the URL of the servers that are shown it and
// the place where it stands:
//
//	keys:
//	- url: https://api.example.com/v1     # this URL and what is below it
//	  key_env: EXAMPLE_KEY                # or key_file: /run/secrets/example
//	  runs: ["team-a-*"]                  # default: all runs
//
// Its error tells no key.
func ReadKeys(text []byte) (Keys, error) {
	var file struct {
		Keys []struct {
			URL     string   `yaml:"url"`
			KeyEnv  string   `yaml:"key_env"`
			KeyFile string   `yaml:"key_file"`
			Runs    []string `yaml:"runs"`
		} `yaml:"keys"`
	}
	if err := yamltext.Strict(text, &file); err != nil {
		// without the lines around: somebody may have written a key there
		return Keys{}, errors.New(strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	if len(file.Keys) == 0 || len(file.Keys) > maxKeys {
		return Keys{}, fmt.Errorf("keys: %d of them, want 1 to %d", len(file.Keys), maxKeys)
	}
	var keys Keys
	for i, k := range file.Keys {
		scope, err := scopeOf(k.URL)
		if err != nil {
			return Keys{}, fmt.Errorf("keys: %d: %w", i, err)
		}
		for _, pattern := range k.Runs {
			if _, err := path.Match(pattern, ""); err != nil {
				return Keys{}, fmt.Errorf("keys: %d: runs: %q: %w", i, pattern, err)
			}
		}
		key, err := readKey(k.KeyEnv, k.KeyFile)
		if err != nil {
			return Keys{}, fmt.Errorf("keys: %d (%s): %w", i, scope.Host, err)
		}
		wording.Conceal(key)
		keys.list = append(keys.list, scopedKey{scope: scope, runs: k.Runs, key: key})
	}
	// The longest path first; among equals those for fewer runs.
	slices.SortStableFunc(keys.list, func(a, b scopedKey) int {
		if d := len(b.scope.Path) - len(a.scope.Path); d != 0 {
			return d
		}
		return min(1, len(b.runs)) - min(1, len(a.runs))
	})
	return keys, nil
}

// OfURLs are the keys without the one that is shown to every server: those for
// what is no inference server.
func (k Keys) OfURLs() Keys { return Keys{list: k.list} }

// Key is the key that a server is shown on behalf of a run, "" for none.
func (k Keys) Key(run, endpoint string) string {
	if len(k.list) == 0 {
		return k.everywhere
	}
	u, err := scopeOf(endpoint)
	if err != nil {
		return ""
	}
	for _, s := range k.list {
		if s.covers(u) && s.allows(run) {
			return s.key
		}
	}
	return ""
}

func (s scopedKey) covers(u *url.URL) bool {
	return s.scope.Scheme == u.Scheme && s.scope.Host == u.Host && strings.HasPrefix(u.Path+"/", s.scope.Path+"/")
}

func (s scopedKey) allows(run string) bool {
	return len(s.runs) == 0 || slices.ContainsFunc(s.runs, func(pattern string) bool {
		ok, err := path.Match(pattern, run)
		return ok && err == nil
	})
}

// scopeOf reads a base URL into a form that can be compared: the host in lower case and with its
// port, the path without an end.
func scopeOf(base string) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil || u.User != nil || strings.ContainsAny(base, "?#") || u.Host == "" ||
		u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("url: give the base URL of servers, for example https://api.example.com/v1, without credentials, query and fragment")
	}
	// A server may read encoded slashes and dots in its own way.
	if u.RawPath != "" || slices.ContainsFunc(strings.Split(u.Path, "/"),
		func(part string) bool { return part == "." || part == ".." }) {
		return nil, errors.New("url: the path has . or .. or encoded slashes")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Hostname()) + ":" + port,
		Path: strings.TrimRight(u.Path, "/")}, nil
}

// readKey reads a key from where it stands.
func readKey(env, file string) (string, error) {
	var key string
	switch {
	case (env == "") == (file == ""):
		return "", errors.New("give key_env, the name of an environment variable, or key_file")
	case env != "":
		key = os.Getenv(env)
	default:
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("key_file: %w", err)
		}
		key = string(text)
	}
	key = strings.TrimSpace(key)
	if key == "" || len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("%s holds no key: want one line of visible characters", env+file)
	}
	return key, nil
}
