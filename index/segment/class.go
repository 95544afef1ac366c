package segment

import (
	"path"
	"slices"
	"strings"
)

// Class says what kind of file a path names, as far as the path tells. A file may be of several.
type Class uint8

// Classes that ranking looks at.
const (
	Test      Class = 1 << iota // tests, their data, examples
	Vendored                    // copied from elsewhere
	Generated                   // written by a program
)

var classOfFolder = map[string]Class{
	"test": Test, "tests": Test, "testing": Test, "testdata": Test, "__tests__": Test, "spec": Test, "specs": Test,
	"fixtures": Test, "__mocks__": Test,
	"example": Test, "examples": Test, "e2e": Test, "benchmarks": Test,
	"vendor": Vendored, "vendored": Vendored, "third_party": Vendored, "thirdparty": Vendored, "third-party": Vendored,
	"node_modules": Vendored,
	"external":     Vendored, "bower_components": Vendored, "site-packages": Vendored, "Godeps": Vendored,
	"legacy": Vendored, "deprecated": Vendored,
	"generated": Generated, "gen": Generated, "__generated__": Generated, "dist": Generated,
}

// ClassOf goes by a path's folders and the file's name.
func ClassOf(name string) (class Class) {
	folder, base := path.Split(name)
	for segment := range strings.SplitSeq(folder, "/") {
		class |= classOfFolder[segment]
	}
	stem, extension := base, ""
	if dot := strings.LastIndexByte(base, '.'); dot > 0 {
		stem, extension = base[:dot], base[dot:]
	}
	lower := strings.ToLower(stem)
	parts := strings.FieldsFunc(lower, func(r rune) bool { return r == '_' || r == '.' || r == '-' })
	if slices.Contains(parts, "test") || slices.Contains(parts, "tests") ||
		slices.Contains(parts, "spec") || lower == "conftest" ||
		len(stem) > 4 && (strings.HasSuffix(stem, "Test") || strings.HasSuffix(stem, "Tests") ||
			strings.HasSuffix(stem, "Spec")) {
		class |= Test
	}
	if strings.HasSuffix(base, ".d.ts") || strings.HasSuffix(lower, "_pb2") || strings.HasSuffix(lower, ".pb") ||
		slices.Contains(parts, "generated") ||
		strings.HasPrefix(lower, "zz_generated") || extension == ".snap" {
		class |= Generated
	}
	return class
}
