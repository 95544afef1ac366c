package embed_test

import (
	"context"
	"fmt"
	"log"

	"github.com/rondo-rl/rondo/index/embed"
)

// Vectors of texts that speak of the same thing have a larger dot product.
func Example() {
	vectors, err := embed.Static().Embed(context.Background(),
		[]string{"open a file", "read from disk", "send an email"})
	if err != nil {
		log.Fatal(err)
	}
	dot := func(a, b []float32) (sum float32) {
		for i := range a {
			sum += a[i] * b[i]
		}
		return sum
	}
	fmt.Println(dot(vectors[0], vectors[1]) > dot(vectors[0], vectors[2]))
	// Output:
	// true
}
