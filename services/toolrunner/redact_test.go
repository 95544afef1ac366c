package toolrunner

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox/tools"
)

// Secrets of no account, put together here so that none stands in a file.
var (
	awsKey    = "AK" + "IAQ3EGRZ7PVT5XW2NC"
	githubKey = "gh" + "p_9fK2mQ7xLc4VtB8nRz5WyH3jPd6GsA1eUo0X"
	password  = "b7Xq2" + "Lm9Tz4Rk8Wv1Yc"
)

// pemKey is as long as an RSA key of 8192 bits.
func pemKey() string {
	var bits [4700]byte
	rand.NewChaCha8([32]byte{1}).Read(bits[:])
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: bits[:]}))
}

func redactedTexts(t *testing.T, texts ...string) ([]string, map[string]int) {
	t.Helper()
	results := make([]events.ToolResult, len(texts))
	for i, text := range texts {
		results[i].Content = text
	}
	counts, err := redact(t.Context(), results, redactWithin)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		texts[i] = r.Content
	}
	return texts, counts
}

func TestRedact(t *testing.T) {
	lines := strings.Repeat("nothing to see in this line of a file\n", 1000)
	for name, c := range map[string]struct {
		text, want string
		counts     map[string]int
	}{
		"empty":          {"", "", nil},
		"nothing secret": {lines + "exit code: 0", lines + "exit code: 0", nil},
		"an example":     {"AKIAIOSFODNN7" + "EXAMPLE", "AKIAIOSFODNN7" + "EXAMPLE", nil}, // the rules know that it is none
		"one":            {"id: " + awsKey + "\nexit code: 0", "id: [redacted: aws-access-token]\nexit code: 0", map[string]int{"aws-access-token": 1}},
		"two, one twice": {
			awsKey + " " + githubKey + "\n" + awsKey, "[redacted: aws-access-token] [redacted: github-pat]\n[redacted: aws-access-token]",
			map[string]int{"aws-access-token": 2, "github-pat": 1},
		},
		"later without the words that tell": {
			"db_password = \"" + password + "\"\n" + lines + "it is " + password + ".", "db_password = \"[redacted: generic-api-key]\"\n" + lines + "it is [redacted: generic-api-key].",
			map[string]int{"generic-api-key": 2},
		},
		"allowed by a comment": {awsKey + " # gitleaks:allow", "[redacted: aws-access-token] # gitleaks:allow", map[string]int{"aws-access-token": 1}},
		"on lines of its own":  {"a\n" + pemKey() + "b\n", "a\n[redacted: private-key]\nb\n", map[string]int{"private-key": 1}},
		"not UTF-8 around":     {"\xff" + awsKey + "\xff", "\uFFFD[redacted: aws-access-token]\uFFFD", map[string]int{"aws-access-token": 1}},
	} {
		got, counts := redactedTexts(t, c.text)
		if got[0] != c.want || !maps.Equal(counts, c.counts) {
			t.Errorf("%s: %.300q, %v", name, got[0], counts)
		}
	}
}

// TestRedactWhereverItStands: a long secret is found at every place of a text that is searched in windows.
func TestRedactWhereverItStands(t *testing.T) {
	key := pemKey()
	for before := 0; before <= 2*window; before += 4001 {
		for name, filler := range map[string]string{"lines": "seven.\n", "one line": "seven. "} {
			head := strings.Repeat(filler, before/len(filler)) + "\n"
			got, counts := redactedTexts(t, head+key+strings.Repeat(filler, window/len(filler)))
			if !strings.HasPrefix(got[0], head+"[redacted: private-key]\n"+filler) || counts["private-key"] != 1 || len(counts) != 1 {
				t.Errorf("behind %d bytes of %s: %v", before, name, counts)
			}
		}
	}
}

func FuzzWindows(f *testing.F) {
	f.Add(window+1, 7)
	f.Add(10*window, 0)
	f.Add(5*window+3, window)
	f.Fuzz(func(t *testing.T, size, line int) {
		if size < 0 || size > 2*tools.MaxContent {
			t.Skip()
		}
		data := make([]byte, size)
		for i := range data {
			if data[i] = byte('a' + i%23); line > 0 && i%line == 0 {
				data[i] = '\n'
			}
		}
		text, at := string(data), 0
		for i, part := range windows(text) {
			if i > 0 {
				at -= overlap
			}
			if len(part) > window || !strings.HasPrefix(text[at:], part) {
				t.Fatalf("part %d of %d bytes is not what stands at %d", i, len(part), at)
			}
			at += len(part)
		}
		if at != size {
			t.Errorf("the windows end at %d of %d", at, size)
		}
	})
}

// TestRedactIsBounded: neither short secrets that become long markers nor texts that take long to search have their way.
func TestRedactIsBounded(t *testing.T) {
	got, counts := redactedTexts(t, `api_key = "`+password+"\"\n"+strings.Repeat(password+" ", tools.MaxContent/(len(password)+1)))
	if n := len(got[0]); n > tools.MaxContent+100 || strings.Contains(got[0], password) || counts["generic-api-key"] < 1000 {
		t.Errorf("%d bytes with %v", n, counts)
	}
	results := []events.ToolResult{{Content: "harmless"}, {}, {Content: awsKey}}
	counts, err := redact(t.Context(), results, 0)
	const withheld = "[redacted: unsearched]"
	if err != nil || results[0].Content != withheld || results[1].Content != "" || results[2].Content != withheld || !maps.Equal(counts, map[string]int{events.Unsearched: 2}) {
		t.Errorf("without time: %+v, %v, %v", results, counts, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := redact(ctx, []events.ToolResult{{Content: "harmless"}}, redactWithin); !errors.Is(err, context.Canceled) {
		t.Errorf("a search that was ended by its caller: %v", err)
	}
}

// TestRedactIsTheSameEachTime, also where several turns are searched at once and two rules know the same secret.
func TestRedactIsTheSameEachTime(t *testing.T) {
	var text strings.Builder
	for i := range 20 {
		fmt.Fprintf(&text, "secret_key_%d = \"%s%d\"\naws %s\ntoken: %s\n", i, password, i, awsKey, githubKey)
	}
	want, wantCounts := redactedTexts(t, text.String())
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			results := []events.ToolResult{{Content: text.String()}}
			counts, err := redact(t.Context(), results, redactWithin)
			if err != nil || results[0].Content != want[0] || !maps.Equal(counts, wantCounts) {
				t.Errorf("%v, then %v: %v", wantCounts, counts, err)
			}
		})
	}
	group.Wait()
}
