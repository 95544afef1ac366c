package wording

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// shortestCredential is how many bytes a credential has that is looked for: a shorter one is found
// in texts that have nothing to do with it.
const shortestCredential = 12

// shortestEncoded is how many letters of an encoded secret are looked for.
const shortestEncoded = 6

// Credential stands in a text in the place of a credential of this process.
const Credential = "[redacted: credential]"

// credentials are those of this process.
var credentials struct {
	mutex sync.Mutex
	forms []string
	known map[string]bool
	clean atomic.Pointer[strings.Replacer]
}

// Conceal lets Clean take a credential of this process out of texts: a key of the store, of
// inference servers, of the gateway.
func Conceal(secrets ...string) {
	c := &credentials
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, secret := range secrets {
		if secret = strings.TrimSpace(secret); len(secret) < shortestCredential || c.known[secret] {
			continue
		}
		if c.known == nil {
			c.known = map[string]bool{}
		}
		c.known[secret] = true
		c.forms = append(c.forms, Forms(secret)...)
	}
	// Of two that begin at one place the longer one goes.
	slices.SortFunc(c.forms, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)),
			strings.Compare(a, b))
	})
	c.forms = slices.Compact(c.forms)
	var pairs []string
	for _, form := range c.forms {
		pairs = append(pairs, form, Credential)
	}
	if len(pairs) > 0 {
		c.clean.Store(strings.NewReplacer(pairs...))
	}
}

// Clean is a text without the credentials of this process, also where they are escaped, or part of
// a text that is encoded as base64 or in hexadecimal digits.
func Clean(text string) string {
	if r := credentials.clean.Load(); r != nil {
		return r.Replace(text)
	}
	return text
}

// Forms are the ways in which a secret is written in texts, the plain one first.
func Forms(secret string) []string {
	quoted := strconv.Quote(secret)
	digits := hex.EncodeToString([]byte(secret))
	forms := []string{secret, quoted[1 : len(quoted)-1]}
	if len(digits) >= shortestEncoded {
		forms = append(forms, digits, strings.ToUpper(digits))
	}
	for _, escaped := range []string{url.QueryEscape(secret), url.PathEscape(secret)} {
		forms = append(forms, escaped, lowerEscapes(escaped))
	}
	for before := range 3 { // bytes of the encoded text that share the first letters with the secret
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			encoded := encoding.EncodeToString(append(make([]byte, before), secret...))
			first := (8*before + 5) / 6             // letters with bits of what is before
			whole := (before + len(secret)) * 8 / 6 // letters without bits of what is behind
			if whole-first >= shortestEncoded {
				forms = append(forms, encoded[first:whole])
			}
		}
	}
	slices.Sort(forms[1:])
	return slices.Compact(forms)
}

// lowerEscapes spells %2F as %2f.
func lowerEscapes(text string) string {
	lower := []byte(text)
	for i := 0; i+2 < len(lower); i++ {
		if lower[i] == '%' {
			copy(lower[i+1:], strings.ToLower(text[i+1:i+3]))
		}
	}
	return string(lower)
}
