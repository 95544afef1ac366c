package wording

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// TestClean: a credential goes out of a text in every form, wherever it begins in what is encoded;
// what is left is as it was.
func TestClean(t *testing.T) {
	const secret = "sk+w0rd/with\"öther=signs 123"
	if text := "nothing is known: " + secret; Clean(text) != text {
		t.Fatal("a text changes before anything is known")
	}
	Conceal(secret, "short", "", " another-credential\n")
	for before := range 7 {
		for after := range 4 {
			whole := strings.Repeat("u", before) + secret + strings.Repeat("v", after)
			inJSON, err := json.Marshal(whole)
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{
				"plain": whole, "quoted": fmt.Sprintf("%q", whole), "JSON": string(inJSON),
				"hex": hex.EncodeToString([]byte(whole)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(whole))),
				"query": url.QueryEscape(whole), "path": url.PathEscape(whole),
				"lower":  lowerEscapes(url.QueryEscape(whole)),
				"base64": base64.StdEncoding.EncodeToString([]byte(whole)),
				"raw":    base64.RawStdEncoding.EncodeToString([]byte(whole)),
				"URL":    base64.URLEncoding.EncodeToString([]byte(whole)),
			} {
				got := Clean("at " + text + " end")
				if !strings.Contains(got, Credential) || !strings.HasPrefix(got, "at ") ||
					!strings.HasSuffix(got, " end") || len(got) > len(Credential)+3*(before+after)+20 {
					t.Errorf("%s, %d before and %d behind: %s of %s", name, before, after, got, text)
				}
			}
		}
	}
	Conceal(secret) // known already
	if text := "what is short stays short, and base64 as c2hvcnQ"; Clean(text) != text {
		t.Errorf("%s", Clean(text))
	}
	if got := Clean("the another-credential"); got != "the "+Credential {
		t.Error(got)
	}
}
