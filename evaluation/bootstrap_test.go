package evaluation

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// beta draws from Beta(a, b) for whole a and b, as the a-th smallest of a+b−1 uniform numbers.
func beta(rng *rand.Rand, a, b int) float64 {
	u := make([]float64, a+b-1)
	for i := range u {
		u[i] = rng.Float64()
	}
	slices.Sort(u)
	return u[a-1]
}

// TestCoverage evaluates policies whose pass@1 is known many times over: tasks are drawn whose
// difficulties have a beta distribution, and each is tried a few times. The interval must hold the
// truth about as often as it promises, where plain percentiles of the same bootstrap of few tasks
// do not. With 400 evaluations a part of 0.95 has a standard error of 0.011.
func TestCoverage(t *testing.T) {
	const evaluations = 400
	for _, c := range []struct {
		tasks, tries, a, b int
		least, most        float64
		percentiles        float64 // hold no more than this; 0: not looked at
	}{
		{tasks: 5, tries: 4, a: 1, b: 1, least: 0.89, most: 0.98},
		{tasks: 8, tries: 4, a: 4, b: 1, least: 0.92, most: 0.98, percentiles: 0.91},
		{tasks: 8, tries: 4, a: 30, b: 90, least: 0.92, most: 0.99}, // nearly the same for all tasks
		{tasks: 20, tries: 4, a: 4, b: 1, least: 0.93, most: 0.98},
	} {
		truth := float64(c.a) / float64(c.a+c.b)
		rng := rand.New(rand.NewPCG(7, 11))
		hits, plain := 0, 0
		for evaluation := range evaluations {
			values := make([]float64, c.tasks)
			for i := range values {
				p := beta(rng, c.a, c.b)
				for range c.tries {
					if rng.Float64() < p {
						values[i] += 1 / float64(c.tries)
					}
				}
			}
			o := Options{Confidence: 0.95, Resamples: 400, Seed: int64(evaluation)}
			if e := boundedMeans([][]float64{values}, 0, o)[0]; e.Low-1e-9 <= truth && truth <= e.High+1e-9 {
				hits++
			}
			if c.percentiles == 0 {
				continue
			}
			var replicates []float64
			resample(c.tasks, o, func(draw []int) {
				var total float64
				for _, i := range draw {
					total += values[i]
				}
				replicates = append(replicates, total/float64(c.tasks))
			})
			slices.Sort(replicates)
			if quantile(replicates, 0.025)-1e-9 <= truth && truth <= quantile(replicates, 0.975)+1e-9 {
				plain++
			}
		}
		held, percentiles := float64(hits)/evaluations, float64(plain)/evaluations
		if held < c.least || held > c.most {
			t.Errorf("%d tasks of Beta(%d, %d): intervals of 0.95 held the truth in %.3f of all, want %g to %g",
				c.tasks, c.a, c.b, held, c.least, c.most)
		}
		if c.percentiles > 0 && percentiles > c.percentiles {
			t.Errorf("%d tasks of Beta(%d, %d): plain percentiles held it in %.3f: this test cannot tell the two apart",
				c.tasks, c.a, c.b, percentiles)
		}
	}
}

// TestManyTasksGiveTheUsualInterval: of many values without skew, the bootstrap's
// interval is that of Student's t.
func TestManyTasksGiveTheUsualInterval(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	values := make([]float64, 400)
	for i := range values {
		values[i] = 10 + rng.NormFloat64()
	}
	mean := sum(values) / 400
	var squares float64
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	for _, confidence := range []float64{0.8, 0.95, 0.99} {
		half := studentQuantile(confidence, 399) * math.Sqrt(squares/399/400)
		e := means([][]float64{values}, Options{Confidence: confidence, Resamples: 6000})[0]
		if math.Abs(e.Value-mean) > 1e-12 || math.Abs(e.Low-mean+half) > 0.06*half ||
			math.Abs(e.High-mean-half) > 0.06*half {
			t.Errorf("%g: got %+v, want %g ± %g", confidence, e, mean, half)
		}
	}
}

// TestSkewness is of 0, 0, 0, 1 by hand: distances from the mean −1/4 three times and 3/4, so Σ d³
// = 3/8, Σ d² = 3/4 and the acceleration is (3/8) / (6·(3/4)^1.5).
func TestSkewness(t *testing.T) {
	without := []float64{1. / 3, 1. / 3, 1. / 3, 0} // the mean without each
	if got, want := skewness(without), 3./8/(6*math.Pow(0.75, 1.5)); math.Abs(got-want) > 1e-12 {
		t.Errorf("got %g, want %g", got, want)
	}
	if got := skewness([]float64{1, 1}); got != 0 {
		t.Errorf("no spread: %g", got)
	}
}

// TestMedianBias: half of the replicates below is none, and replicates equal
// to the value count half.
func TestMedianBias(t *testing.T) {
	for _, c := range []struct {
		value  float64
		sorted []float64
		want   float64
	}{
		{2.5, []float64{1, 2, 3, 4}, 0},
		{2, []float64{1, 2, 2, 2, 3}, 0},
		{0, []float64{-1, 1e-17, 1, 2}, normalQuantile(0.375)}, // a sum of another order
		{4.5, []float64{1, 2, 3, 4, 5}, normalQuantile(0.8)},
		{9, []float64{1, 2}, normalQuantile(0.75)}, // never infinite
	} {
		if got := medianBias(c.value, c.sorted); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%g among %v: got %g, want %g", c.value, c.sorted, got, c.want)
		}
	}
}

// TestQuantilesOfTables has figures of the printed tables.
func TestQuantilesOfTables(t *testing.T) {
	for _, c := range []struct {
		inside  float64
		freedom int
		want    float64
	}{
		{0.95, 1, 12.706}, {0.95, 2, 4.303}, {0.95, 3, 3.182}, {0.95, 7, 2.365}, {0.95, 30, 2.042},
		{0.95, 1000, 1.962}, {0.95, 5000, 1.960},
		{0.99, 1, 63.657}, {0.99, 5, 4.032}, {0.8, 9, 1.383}, {0.999, 4, 8.610},
	} {
		if got := studentQuantile(c.inside, c.freedom); math.Abs(got-c.want) > 0.0006 {
			t.Errorf("t of %g with %d degrees of freedom: got %.4f, want %.3f", c.inside, c.freedom, got, c.want)
		}
	}
	for p, want := range map[float64]float64{0.5: 0, 0.975: 1.959964, 0.995: 2.575829, 0.05: -1.644854} {
		if got := normalQuantile(p); math.Abs(got-want) > 1e-6 || math.Abs(normal(got)-p) > 1e-12 {
			t.Errorf("normal quantile of %g: got %g, which has %g below, want %g", p, got, normal(got), want)
		}
	}
}

// TestSameOnAll: where all n tasks pass it is Clopper and Pearson's interval, whose ends for
// 10 of 10 are 0.6915 and 1.
func TestSameOnAll(t *testing.T) {
	o := Options{Confidence: 0.95, Resamples: 1000}
	ones, zeros := slices.Repeat([]float64{1}, 10), make([]float64, 10)
	if e := boundedMeans([][]float64{ones}, 0, o)[0]; math.Abs(e.Low-0.6915) > 5e-5 || e.High != 1 || e.Value != 1 {
		t.Errorf("10 of 10: %+v", e)
	}
	if e := boundedMeans([][]float64{zeros}, 0, o)[0]; math.Abs(e.High-0.3085) > 5e-5 || e.Low != 0 || e.Value != 0 {
		t.Errorf("0 of 10: %+v", e)
	}
	if e := boundedMeans([][]float64{zeros}, -1, o)[0]; math.Abs(e.High-0.3085) > 5e-5 || e.Low != -e.High {
		t.Errorf("10 differences of 0: %+v", e)
	}
	if e := boundedMeans([][]float64{{0.5}}, 0, o)[0]; math.Abs(e.Low-0.0125) > 1e-9 || math.Abs(e.High-0.9875) > 1e-9 {
		t.Errorf("one task says next to nothing: %+v", e)
	}
}

// TestWilson has figures of Newcombe 1998 (Statistics in Medicine 17:857), table I.
func TestWilson(t *testing.T) {
	for _, c := range []struct {
		passed, n int
		low, high float64
	}{{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {1, 29, 0.0061, 0.1718}} {
		if e := wilson(c.passed, c.n, 0.95); math.Abs(e.Low-c.low) > 5e-5 || math.Abs(e.High-c.high) > 5e-5 {
			t.Errorf("%d of %d: got %.4f to %.4f, want %.4f to %.4f", c.passed, c.n, e.Low, e.High, c.low, c.high)
		}
	}
	if e := wilson(4, 4, 0.95); e.High != 1 || e.Value != 1 {
		t.Errorf("all of 4: %+v", e)
	}
}
