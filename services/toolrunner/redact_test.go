package toolrunner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// Secrets of no account, put together here so that none stands in a file.
var (
	awsKey    = "AK" + "IAQ3EGRZ7PVT5XW2NC"
	githubKey = "gh" + "p_9fK2mQ7xLc4VtB8nRz5WyH3jPd6GsA1eUo0X"
	password  = "b7Xq2" + "Lm9Tz4Rk8Wv1Yc"
)

func redactedTexts(t *testing.T, texts ...string) ([]string, map[string]int) {
	t.Helper()
	results := make([]events.ToolResult, len(texts))
	for i, text := range texts {
		results[i].Content = text
	}
	counts, err := redactResults(t.Context(), results, &toolset.State{}, redactWithin)
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
		// the rules know that it is none
		"an example": {"AKIAIOSFODNN7" + "EXAMPLE", "AKIAIOSFODNN7" + "EXAMPLE", nil},
		"one": {"id: " + awsKey + "\nexit code: 0", "id: [redacted: aws-access-token]\nexit code: 0",
			map[string]int{"aws-access-token": 1}},
		"two, one twice": {
			awsKey + " " + githubKey + "\n" + awsKey,
			"[redacted: aws-access-token] [redacted: github-pat]\n[redacted: aws-access-token]",
			map[string]int{"aws-access-token": 2, "github-pat": 1},
		},
		"later without the words that tell": {
			"db_password = \"" + password + "\"\n" + lines + "it is " + password + ".",
			"db_password = \"[redacted: generic-api-key]\"\n" + lines + "it is [redacted: generic-api-key].",
			map[string]int{"generic-api-key": 2},
		},
		"allowed by a comment": {awsKey + " # gitleaks:allow", "[redacted: aws-access-token] # gitleaks:allow",
			map[string]int{"aws-access-token": 1}},
		"not UTF-8 around": {"\xff" + awsKey + "\xff", "\uFFFD[redacted: aws-access-token]\uFFFD",
			map[string]int{"aws-access-token": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got, counts := redactedTexts(t, c.text)
			if got[0] != c.want || !maps.Equal(counts, c.counts) {
				t.Errorf("%s: %.300q, %v", name, got[0], counts)
			}
		})
	}
}

// TestRedactIsBounded: neither short secrets that become long markers nor texts that take long
// to search have their way.
func TestRedactIsBounded(t *testing.T) {
	got, counts := redactedTexts(t, `api_key = "`+password+"\"\n"+
		strings.Repeat(password+" ", tools.MaxContent/(len(password)+1)))
	if n := len(got[0]); n > tools.MaxContent+100 || strings.Contains(got[0], password) ||
		counts["generic-api-key"] < 1000 {
		t.Errorf("%d bytes with %v", n, counts)
	}
	results := []events.ToolResult{{Content: "harmless"}, {}, {Content: awsKey}}
	counts, err := redactResults(t.Context(), results, &toolset.State{}, 0)
	const withheld = "[redacted: unsearched]"
	if err != nil || results[0].Content != withheld || results[1].Content != "" || results[2].Content != withheld ||
		!maps.Equal(counts, map[string]int{events.Unsearched: 2}) {
		t.Errorf("without time: %+v, %v, %v", results, counts, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := redactResults(ctx, []events.ToolResult{{Content: "harmless"}}, &toolset.State{},
		redactWithin); !errors.Is(err, context.Canceled) {
		t.Errorf("a search that was ended by its caller: %v", err)
	}
}

// TestRedactIsTheSameEachTime, also where several turns are searched at once and two
// rules know the same secret.
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
			counts, err := redactResults(t.Context(), results, &toolset.State{}, redactWithin)
			if err != nil || results[0].Content != want[0] || !maps.Equal(counts, wantCounts) {
				t.Errorf("%v, then %v: %v", wantCounts, counts, err)
			}
		})
	}
	group.Wait()
}
