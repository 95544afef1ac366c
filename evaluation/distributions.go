package evaluation

import "math"

// normal is the standard normal distribution function.
func normal(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }

// normalQuantile is its inverse.
func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

// studentQuantile is the upper end of the interval around 0 that holds the given part of Student's
// t distribution: studentQuantile(0.95, 7) is 2.365.
func studentQuantile(inside float64, freedom int) float64 {
	if freedom > 1000 { // the two differ by less than a thousandth
		return normalQuantile((1 + inside) / 2)
	}
	low, high := 0.0, math.Pi/2 // the angle, as the values themselves have no bound
	for range 60 {
		if middle := (low + high) / 2; studentInside(middle, freedom) < inside {
			low = middle
		} else {
			high = middle
		}
	}
	return math.Sqrt(float64(freedom)) * math.Tan(low)
}

// studentInside is the part of the t distribution between −t and t where t = √freedom·tan(angle),
// by the finite sums for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).
func studentInside(angle float64, freedom int) float64 {
	sine, cosine := math.Sincos(angle)
	if freedom%2 == 0 {
		sum, term := 0.0, 1.0
		for j := 0; j <= freedom-2; j += 2 {
			sum += term
			term *= cosine * cosine * float64(j+1) / float64(j+2)
		}
		return sine * sum
	}
	sum, term := 0.0, cosine
	for j := 1; j <= freedom-2; j += 2 {
		sum += term
		term *= cosine * cosine * float64(j+1) / float64(j+2)
	}
	return 2 / math.Pi * (angle + sine*sum)
}
