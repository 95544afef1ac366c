// Package wordpiece cuts text into the tokens of a BERT vocabulary, as tokenizer.json of Hugging Face describes it.
package wordpiece

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Tokenizer is immutable, and safe for concurrent use.
type Tokenizer struct {
	ids       map[string]int32
	unknown   int32 // its token, -1 where there is none
	prefix    string
	longest   int // characters of a word that is looked up
	most      int // bytes of the longest token
	lowerCase bool
	accents   bool // are taken off
	cleanText bool
	chinese   bool // characters stand apart
}

// Limits of a tokenizer.json.
const (
	MaxFile   = 64 << 20 // bytes
	MaxTokens = 1 << 20
	maxToken  = 512 // bytes of one

	mostLongest = 1000
)

type file struct {
	Normalizer *struct {
		Type               string `json:"type"`
		CleanText          *bool  `json:"clean_text"`
		HandleChineseChars *bool  `json:"handle_chinese_chars"`
		StripAccents       *bool  `json:"strip_accents"`
		Lowercase          *bool  `json:"lowercase"`
	} `json:"normalizer"`
	PreTokenizer *struct {
		Type string `json:"type"`
	} `json:"pre_tokenizer"`
	Model struct {
		Type    string           `json:"type"`
		Unknown string           `json:"unk_token"`
		Prefix  *string          `json:"continuing_subword_prefix"`
		Longest *int             `json:"max_input_chars_per_word"`
		Vocab   map[string]int32 `json:"vocab"`
	} `json:"model"`
}

// Parse reads a tokenizer.json, and refuses tokenizers of other kinds: what they cut otherwise would be looked up wrongly.
func Parse(text []byte) (*Tokenizer, error) {
	t, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

func parse(text []byte) (*Tokenizer, error) {
	if len(text) > MaxFile {
		return nil, fmt.Errorf("%d bytes (limit %d)", len(text), MaxFile)
	}
	var kind struct {
		Model struct {
			Type string `json:"type"`
		} `json:"model"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return nil, err
	}
	if kind.Model.Type != "WordPiece" { // before the vocabulary, which has another form for other kinds
		return nil, fmt.Errorf("the model is %.40q: only WordPiece is known", kind.Model.Type)
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	if f.Normalizer == nil || f.Normalizer.Type != "BertNormalizer" {
		return nil, errors.New("the normalizer is not BertNormalizer, the only one that is known")
	}
	if f.PreTokenizer == nil || f.PreTokenizer.Type != "BertPreTokenizer" {
		return nil, errors.New("the pre-tokenizer is not BertPreTokenizer, the only one that is known")
	}
	n := len(f.Model.Vocab)
	if n == 0 || n > MaxTokens {
		return nil, fmt.Errorf("%d tokens: want 1 to %d", n, MaxTokens)
	}
	t := &Tokenizer{
		ids: f.Model.Vocab, unknown: -1, prefix: or(f.Model.Prefix, "##"), longest: or(f.Model.Longest, 100),
		lowerCase: or(f.Normalizer.Lowercase, true), cleanText: or(f.Normalizer.CleanText, true), chinese: or(f.Normalizer.HandleChineseChars, true),
	}
	t.accents = or(f.Normalizer.StripAccents, t.lowerCase)
	if t.longest < 1 || t.longest > mostLongest || len(t.prefix) > maxToken {
		return nil, fmt.Errorf("words of %d characters, and a prefix of %d bytes", t.longest, len(t.prefix))
	}
	for token, id := range t.ids {
		if id < 0 || id >= MaxTokens || len(token) > maxToken {
			return nil, fmt.Errorf("token %.40q has the number %d", token, id)
		}
		t.most = max(t.most, len(token))
	}
	if id, ok := t.ids[f.Model.Unknown]; ok {
		t.unknown = id
	}
	return t, nil
}

func or[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

// Largest is the largest number of a token.
func (t *Tokenizer) Largest() int {
	largest := int32(0)
	for _, id := range t.ids {
		largest = max(largest, id)
	}
	return int(largest)
}

// Tokens gives the first tokens of a text, up to a limit. Unknown words have none.
func (t *Tokenizer) Tokens(text string, limit int) []int32 {
	var list []int32
	for word := range t.words(text) {
		if len(list) >= limit {
			break
		}
		list = t.appendWord(list, word)
	}
	return list[:min(len(list), limit)]
}

// appendWord cuts a word greedily, the longest token first. One of which any part is unknown is unknown as a whole.
func (t *Tokenizer) appendWord(list []int32, word string) []int32 {
	if len(word) > t.longest && utf8.RuneCountInString(word) > t.longest {
		return list
	}
	known := len(list)
	for start := 0; start < len(word); {
		end, id := min(len(word), start+t.most), int32(-1)
		for ; end > start; end-- {
			if end < len(word) && !utf8.RuneStart(word[end]) {
				continue
			}
			token := word[start:end]
			if start > 0 {
				token = t.prefix + token
			}
			if found, ok := t.ids[token]; ok {
				id = found
				break
			}
		}
		if id < 0 {
			return list[:known]
		}
		if id != t.unknown {
			list = append(list, id)
		}
		start = end
	}
	return list
}

// words gives a text's words as BERT's basic tokenizer: cut at white space, with each mark of punctuation by itself.
func (t *Tokenizer) words(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		start := -1
		text := t.normal(text)
		for i, r := range text {
			space, apart := unicode.IsSpace(r), punctuation(r) || t.chinese && ideograph(r)
			if (space || apart) && start >= 0 {
				if !yield(text[start:i]) {
					return
				}
				start = -1
			}
			switch {
			case apart:
				if !yield(text[i : i+utf8.RuneLen(r)]) {
					return
				}
			case !space && start < 0:
				start = i
			}
		}
		if start >= 0 {
			yield(text[start:])
		}
	}
}

func (t *Tokenizer) normal(text string) string {
	text = strings.ToValidUTF8(text, "")
	if t.cleanText {
		text = strings.Map(func(r rune) rune {
			switch {
			case unicode.IsSpace(r):
				return ' '
			case r == 0 || r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs):
				return -1
			}
			return r
		}, text)
	}
	if t.accents {
		text = strings.Map(func(r rune) rune {
			if unicode.Is(unicode.Mn, r) {
				return -1
			}
			return r
		}, norm.NFD.String(text))
	}
	if t.lowerCase {
		text = strings.ToLower(text)
	}
	return text
}

func punctuation(r rune) bool {
	return r >= '!' && r <= '/' || r >= ':' && r <= '@' || r >= '[' && r <= '`' || r >= '{' && r <= '~' || unicode.IsPunct(r)
}

func ideograph(r rune) bool {
	return r >= 0x4e00 && r <= 0x9fff || r >= 0x3400 && r <= 0x4dbf || r >= 0x20000 && r <= 0x2a6df || r >= 0x2a700 && r <= 0x2ceaf ||
		r >= 0xf900 && r <= 0xfaff || r >= 0x2f800 && r <= 0x2fa1f
}
