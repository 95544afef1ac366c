package runfile

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// TestSizes: a size reads as people write it, and writes as it reads.
func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{"0": 0, "4097": 4097, "64KiB": 64 << 10, "3MiB": 3 << 20, "8GiB": 8 << 30,
		"16TiB": 16 << 40, "1536MiB": 3 << 29} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		if got.String() != text {
			t.Errorf("%s writes as %s", text, got)
		}
	}
	for _, text := range []string{"", "-1", "8G", "8 GiB", "GiB", "8388608TiB", "9223372036854775808", "1e3", "0x10",
		strings.Repeat("9", 1000)} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); err == nil || len(err.Error()) > 200 {
			t.Errorf("%.40q: %d, %v", text, got, err)
		}
	}
}

// TestLogOfARunFile: a file that says nothing has the defaults.
func TestLogOfARunFile(t *testing.T) {
	for text, want := range map[string]Log{
		"policy: p": {},
		"log: {max_bytes: 8GiB, archive_every: 30s}": {MaxBytes: 8 << 30, ArchiveEvery: Duration(30 * time.Second)},
		"log: {placement: region:eu}":                {Placement: "region:eu"},
		"log: {max_bytes: 268435456}":                {MaxBytes: 256 << 20},
	} {
		cfg := DefaultRunConfig()
		if err := yaml.UnmarshalWithOptions([]byte(text), &cfg, yaml.Strict()); err != nil || cfg.Log != want {
			t.Errorf("%s: %+v, %v", text, cfg.Log, err)
		}
		recorded, err := json.Marshal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if want == (Log{}) && strings.Contains(string(recorded), `"log"`) {
			t.Errorf("the defaults are recorded: %s", recorded)
		}
		var read RunConfig
		if err := json.Unmarshal(recorded, &read); err != nil || read.Log != want {
			t.Errorf("%s is recorded as %+v, %v", text, read.Log, err)
		}
	}
	if l := (Log{}); l.Bytes() != 2<<30 || l.Every() != 5*time.Minute {
		t.Errorf("the defaults are %d bytes and %s", l.Bytes(), l.Every())
	}
}

func TestBoundsOfALog(t *testing.T) {
	for want, l := range map[string]Log{
		"":                               {MaxBytes: minLogBytes, ArchiveEvery: Duration(maxArchiveEvery), Replicas: 3},
		"log.max_bytes 1KiB: must be 64": {MaxBytes: 1 << 10},
		"log.max_bytes 17TiB":            {MaxBytes: 17 << 40},
		"log.archive_every 1s: must be":  {ArchiveEvery: Duration(time.Second)},
		"log.archive_every -1m0s":        {ArchiveEvery: Duration(-time.Minute)},
		"log.archive_every 25h0m0s":      {ArchiveEvery: Duration(25 * time.Hour)},
		"log.replicas: 2 replicas: use":  {Replicas: 2},
		"log.replicas: 7 replicas":       {Replicas: 7},
		"log.replicas: -1 replicas":      {Replicas: -1},
		"log.placement \"region eu\"":    {Placement: "region eu"},
	} {
		cfg := validConfig()
		cfg.Log = l
		err := cfg.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", l, err, want)
		}
	}
}
