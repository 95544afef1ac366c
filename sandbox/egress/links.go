package egress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
)

// links turns a page's links to files into links to the proxy.
type links struct {
	bases []*url.URL
	page  *url.URL
	proxy string
}

// inward is a link as the sandbox can follow it. One to a place that the operator has not named
// stays as it is, and leads nowhere.
func (l links) inward(text string) string {
	link, err := l.page.Parse(text)
	if err != nil {
		return text
	}
	for n, base := range l.bases {
		if isBelow(base, link) {
			inner := fmt.Sprintf("%s/%s/%d/%s", l.proxy, files, n,
				strings.TrimPrefix(link.EscapedPath(), base.EscapedPath()))
			if link.Fragment != "" {
				inner += "#" + link.EscapedFragment()
			}
			return inner
		}
	}
	return link.String()
}

// rewriterOf gives what rewrites a page of that type, nil for files.
func rewriterOf(registry, contentType string) func([]byte, links) ([]byte, error) {
	kind := strings.TrimSpace(strings.ToLower(strings.Split(contentType, ";")[0]))
	isJSON := kind == "application/json" || strings.HasSuffix(kind, "+json")
	switch {
	case registry == "pypi" && (kind == "text/html" || kind == "application/vnd.pypi.simple.v1+html"):
		return rewriteHTML
	case registry == "pypi" && isJSON:
		return func(page []byte, l links) ([]byte, error) { return rewriteJSON(page, l, "url") }
	case registry == "npm" && isJSON:
		return func(page []byte, l links) ([]byte, error) { return rewriteJSON(page, l, "tarball") }
	}
	return nil
}

var href = regexp.MustCompile(`(?i)(\shref\s*=\s*)("[^"]*"|'[^']*')`)

func rewriteHTML(page []byte, l links) ([]byte, error) {
	return href.ReplaceAllFunc(page, func(found []byte) []byte {
		parts := href.FindSubmatch(found)
		link := html.UnescapeString(string(parts[2][1 : len(parts[2])-1]))
		return append(bytes.Clone(parts[1]), `"`+html.EscapeString(l.inward(link))+`"`...)
	}), nil
}

// rewriteJSON rewrites the links that are members of one name, wherever they are.
func rewriteJSON(page []byte, l links, member string) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(page))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil, err
	}
	rewriteLinks(v, l, member)
	return json.Marshal(v)
}

func rewriteLinks(v any, l links, member string) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			rewriteLinks(item, l, member)
		}
	case map[string]any:
		for name, item := range v {
			if link, ok := item.(string); ok && name == member {
				v[name] = l.inward(link)
			} else {
				rewriteLinks(item, l, member)
			}
		}
	}
}
