package wordpiece

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// described is a tokenizer.json as the tokenizers library writes it.
func described(tokens []string, change ...string) []byte {
	vocab := map[string]int{}
	for i, token := range tokens {
		vocab[token] = i
	}
	list, _ := json.Marshal(vocab)
	text := fmt.Sprintf(`{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],
		"normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true},
		"pre_tokenizer":{"type":"BertPreTokenizer"},"post_processor":null,"decoder":{"type":"WordPiece","prefix":"##","cleanup":true},
		"model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":10,"vocab":%s}}`, list)
	return []byte(strings.NewReplacer(change...).Replace(text))
}

var tokens = []string{"[PAD]", "[UNK]", "read", "##er", "##s", "file", "(", ")", "_", "grosse", "検", "a", "##a", "."}

func TestTokens(t *testing.T) {
	tokenizer, err := Parse(described(tokens))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		want []int32
	}{
		{"", nil},
		{"Readers(read_file)", []int32{2, 3, 4, 6, 2, 8, 5, 7}},
		{"reading file", []int32{5}}, // what is unknown in part is unknown as a whole
		{"read\u200b\x00ers", []int32{2, 3, 4}},
		{"grösse", []int32{9}},
		{"Große grossé", []int32{9}},
		{"\xffGROSSE\u0301 検検", []int32{9, 10, 10}},
		{"aaaaaaaaaa", []int32{11, 12, 12, 12, 12, 12, 12, 12, 12, 12}},
		{"aaaaaaaaaaa", nil}, // longer than a word may be
		{"[UNK]", nil},
		{strings.Repeat("file. ", 100), slices.Repeat([]int32{5, 13}, 25)},
	} {
		if got := tokenizer.Tokens(c.text, 50); !slices.Equal(got, c.want) {
			t.Errorf("tokens of %.40q are %v, want %v", c.text, got, c.want)
		}
	}
	cased, err := Parse(described(tokens, `"lowercase":true`, `"lowercase":false`))
	if err != nil {
		t.Fatal(err)
	}
	if got := cased.Tokens("Read read ré", 50); !slices.Equal(got, []int32{2}) {
		t.Errorf("tokens by case are %v", got)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		text []byte
		want string
	}{
		{[]byte("["), "tokenizer: "},
		{described(tokens, `"model":{"type":"WordPiece"`, `"model":{"type":"BPE"`), `"BPE": only WordPiece`},
		{[]byte(`{"model":{"type":"Unigram","vocab":[["a",-1.5]]}}`), `"Unigram": only WordPiece`},
		{described(tokens, "BertNormalizer", "NFKC"), "BertNormalizer"},
		{described(tokens, "BertPreTokenizer", "Whitespace"), "BertPreTokenizer"},
		{described(nil), "0 tokens"},
		{described(tokens, `"read":2`, `"read":-2`), `"read" has the number -2`},
		{described(tokens, `"read":2`, `"read":2000000`), "2000000"},
		{described(tokens, `word":10`, `word":100000`), "100000 characters"},
		{described([]string{strings.Repeat("a", 600)}), "number 0"},
	} {
		if _, err := Parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80q: the error is %v, want one with %q", c.text, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(described(tokens), "Readers(read_file) 検\xff")
	f.Add(described([]string{"", "##"}), "a")
	f.Fuzz(func(t *testing.T, file []byte, text string) {
		tokenizer, err := Parse(file)
		if err != nil {
			return
		}
		largest := tokenizer.Largest()
		for _, token := range tokenizer.Tokens(text, 100) {
			if token < 0 || int(token) > largest {
				t.Errorf("token %d of %d", token, largest)
			}
		}
	})
}
