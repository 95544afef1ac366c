package fleet

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeysStayWithTheirHosts: a run file can name any URL, and gets no key sent to another
// host, scheme, port or path.
func TestKeysStayWithTheirHosts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("sk-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ONE_KEY", "sk-env")
	t.Setenv("TEAM_KEY", "sk-team")
	keys, err := ReadKeys([]byte(`keys:
- url: https://api.example.com/v1
  key_env: ONE_KEY
- url: HTTPS://API.example.com:443/v1/
  key_env: TEAM_KEY
  runs: ["team-*"]
- url: https://api.example.com/v1/deep
  key_file: ` + file + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ run, url, want string }{
		{"r", "https://api.example.com/v1", "sk-env"},
		{"r", "https://api.example.com:443/v1/", "sk-env"},
		{"r", "https://Api.Example.com/v1/x", "sk-env"},
		{"team-a", "https://api.example.com/v1", "sk-team"},
		{"team-a", "https://api.example.com/v1/deep", "sk-file"},
		{"r", "https://api.example.com/v1/deeper", "sk-env"},
		{"r", "http://api.example.com/v1", ""},
		{"r", "https://api.example.com:8443/v1", ""},
		{"r", "https://api.example.com", ""},
		{"r", "https://api.example.com/v2", ""},
		{"r", "https://api.example.com/v10", ""},
		{"r", "https://api.example.com/v1/../v2", ""},
		{"r", "https://api.example.com/v1/%2e%2e/v2", ""},
		{"r", "https://api.example.com/v1%2f..%2fv2", ""},
		{"r", "https://api.example.com.evil.example/v1", ""},
		{"r", "https://evil.example/https://api.example.com/v1", ""},
		{"r", "https://api.example.com@evil.example/v1", ""},
		{"r", "https://evil.example#api.example.com/v1", ""},
	} {
		if got := keys.Key(c.run, c.url); got != c.want {
			t.Errorf("run %s at %s is shown %q, want %q", c.run, c.url, got, c.want)
		}
	}
	if got := Everywhere("sk").OfURLs().Key("r", "http://anywhere"); got != "" {
		t.Errorf("what is no inference server is shown the key of all inference servers")
	}
	if got := Everywhere(" sk \n").Key("r", "http://anywhere"); got != "sk" {
		t.Errorf("one key for all is %q", got)
	}
}

func TestReadKeysRefuses(t *testing.T) {
	t.Setenv("EMPTY_KEY", "")
	t.Setenv("TWO_LINES", "sk-secret\nsk-other")
	t.Setenv("GOOD_KEY", "sk-secret")
	good := "keys:\n- url: https://api.example.com/v1\n  key_env: GOOD_KEY\n"
	if _, err := ReadKeys([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing":           {"", "want 1 to"},
		"a key in the file": {"keys:\n- url: https://api.example.com/v1\n  key: sk-secret\n", "key"},
		"no place":          {"keys:\n- url: https://api.example.com/v1\n", "key_env"},
		"two places":        {good + "  key_file: /x\n", "key_env"},
		"an empty one":      {strings.Replace(good, "GOOD_KEY", "EMPTY_KEY", 1), "EMPTY_KEY holds no key"},
		"two lines":         {strings.Replace(good, "GOOD_KEY", "TWO_LINES", 1), "TWO_LINES holds no key"},
		"no file":           {strings.Replace(good, "key_env: GOOD_KEY", "key_file: /nowhere/key", 1), "/nowhere/key"},
		"no URL":            {strings.Replace(good, "https://", "", 1), "url"},
		"credentials":       {strings.Replace(good, "https://", "https://user:sk-secret@", 1), "url"},
		"a way up":          {strings.Replace(good, "/v1", "/v1/..", 1), "path"},
		"a bad pattern":     {good + "  runs: [\"a[\"]\n", "a["},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ReadKeys([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			} else if strings.Contains(err.Error(), "sk-secret") {
				t.Errorf("%s: the error tells the key: %v", name, err)
			}
		})
	}
}

// FuzzKeys: whatever a run names, the key goes to the one host.
func FuzzKeys(f *testing.F) {
	f.Setenv("GOOD_KEY", "sk-secret")
	keys, err := ReadKeys([]byte("keys:\n- url: https://api.example.com/v1\n  key_env: GOOD_KEY\n"))
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"https://api.example.com/v1", "https://api.example.com:443/v1/x",
		"https://api.example.com@evil/v1", "https://evil/\\api.example.com/v1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, endpoint string) {
		if keys.Key("r", endpoint) == "" {
			return
		}
		u, err := url.Parse(strings.TrimRight(endpoint, "/") + "/chat/completions") // as it is asked
		if err != nil || u.Scheme != "https" || !strings.EqualFold(u.Hostname(), "api.example.com") ||
			u.Port() != "" && u.Port() != "443" || !strings.HasPrefix(u.Path, "/v1/") {
			t.Errorf("the key goes to %q", endpoint)
		}
	})
}
