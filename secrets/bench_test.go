package secrets_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/delegate-io/dlite/secrets"
)

const (
	logSize    = 64 << 20
	largeWrite = 32 << 10
	smallWrite = 100
)

const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// fakeSecrets returns n values of 20 to 40 characters. All printable characters occur,
// because such values have the most forms.
func fakeSecrets(n int) []string {
	return fakeValues(n, alphanumeric+`!"#$%&'()*+,-./:;<=>?@[]^_{|}~`)
}

// fakeTokens returns n values of 20 to 40 letters and digits.
func fakeTokens(n int) []string { return fakeValues(n, alphanumeric) }

func fakeValues(n int, chars string) []string {
	r := rand.New(rand.NewPCG(1, 2))
	var out []string
	for range n {
		b := make([]byte, 20+r.IntN(21))
		for i := range b {
			b[i] = chars[r.IntN(len(chars))]
		}
		out = append(out, string(b))
	}
	return out
}

// ciLog returns a log with lines of about 100 bytes. Every 2,000th line has a secret.
func ciLog(size int, hits []string) []byte {
	r := rand.New(rand.NewPCG(3, 4))
	words := strings.Fields(`go: downloading test --- PASS ok FAIL build/output/app.js src/main/java/org/example/Service.java:142
		[INFO] Compiling classes to target/classes npm WARN deprecated request@2.88.2: has been https://registry.example.com/a/-/b-1.0.tgz
		Step 12/37 : RUN apt-get install -y curl && rm -rf layer sha256: extracting cached => => transferring context: 2.35kB 0.0s
		warning: unused variable: 'x' at line 77 col 12 error TS2345: Argument of type string is not assignable 1.234s 100% ++ export PATH=/usr/local/bin:/usr/bin`)
	var b bytes.Buffer
	for line := 1; b.Len() < size; line++ {
		fmt.Fprintf(&b, "2026-11-21T13:%02d:%02d.%03dZ ", r.IntN(60), r.IntN(60), r.IntN(1000))
		for end := b.Len() + 50 + r.IntN(50); b.Len() < end; {
			if r.IntN(20) == 0 {
				fmt.Fprintf(&b, "%016x ", r.Uint64())
			} else {
				b.WriteString(words[r.IntN(len(words))] + " ")
			}
		}
		if line%2000 == 0 && len(hits) > 0 {
			b.WriteString(hits[r.IntN(len(hits))])
		}
		b.WriteByte('\n')
	}
	return b.Bytes()[:size]
}

// eachChunk calls f with the text in chunks of a size.
func eachChunk(text []byte, size int, f func([]byte)) {
	for ; len(text) > size; text = text[size:] {
		f(text[:size])
	}
	f(text)
}

// run measures f on a text of size bytes, in MB per second of processor time.
func run(b *testing.B, size int, f func()) {
	b.Helper()
	b.ReportAllocs()
	b.SetBytes(int64(size))
	f() // grows all buffers
	b.ResetTimer()
	began := cpuTime()
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(size)*float64(b.N)/1e6/(cpuTime()-began).Seconds(), "MB/cpu-s")
}

func runMasker(b *testing.B, set *secrets.Set, text []byte, writeSize int) {
	b.Helper()
	m := secrets.NewMasker(io.Discard, set)
	run(b, len(text), func() {
		eachChunk(text, writeSize, func(p []byte) {
			if _, err := m.Write(p); err != nil {
				b.Fatal(err)
			}
		})
		if err := m.Flush(); err != nil {
			b.Fatal(err)
		}
	})
}

var (
	numbers    = []int{1, 10, 100, 1000}
	writeSizes = []struct {
		name string
		size int
	}{{"32KiB", largeWrite}, {"100B", smallWrite}}
)

func sets(values []string) map[string]*secrets.Set {
	return map[string]*secrets.Set{
		"encoded": secrets.NewSet(secrets.Config{}, values...),
		"plain":   secrets.NewPlainSet(values...),
	}
}

func BenchmarkMasker(b *testing.B) {
	for _, n := range numbers {
		values := fakeSecrets(n)
		text := ciLog(logSize, values)
		for _, forms := range []string{"plain", "encoded"} {
			set := sets(values)[forms]
			for _, write := range writeSizes {
				b.Run(fmt.Sprintf("secrets=%d/%s/writes=%s", n, forms, write.name), func(b *testing.B) {
					runMasker(b, set, text, write.size)
					b.ReportMetric(float64(len(secrets.Patterns(set))), "patterns")
				})
			}
		}
	}
}

// BenchmarkDump measures dumps without secrets, in MB of dumped rows.
func BenchmarkDump(b *testing.B) {
	set := secrets.NewSet(secrets.Config{}, fakeSecrets(1000)...)
	text := string(ciLog(4<<20, nil))
	almost := strings.Repeat(fakeSecrets(1)[0][:19], 4<<20/19)
	for _, tt := range []struct {
		name string
		text string
	}{{"xxd", dumpOf(text, 0, 16)}, {"hexdump -C", dumpOf(text, 6, 16)}, {"od -c", dumpOf(text, 5, 16)}, {"almost secrets", dumpOf(almost, 6, 16)}} {
		for _, write := range writeSizes {
			b.Run(fmt.Sprintf("%s/writes=%s", tt.name, write.name), func(b *testing.B) {
				runMasker(b, set, []byte(tt.text), write.size)
			})
		}
	}
}

// BenchmarkCopy measures a copy and a search for newlines in each write, for comparison.
func BenchmarkCopy(b *testing.B) {
	text := ciLog(logSize, nil)
	buf := make([]byte, largeWrite)
	for _, write := range writeSizes {
		b.Run("writes="+write.name, func(b *testing.B) {
			run(b, len(text), func() {
				eachChunk(text, write.size, func(p []byte) {
					for p = buf[:copy(buf, p)]; len(p) > 0; {
						_, p, _ = bytes.Cut(p, []byte{'\n'})
					}
				})
			})
		})
	}
}

// BenchmarkReplacer measures a strings.Replacer on each write, for comparison. It does
// not find a secret that extends over two writes.
func BenchmarkReplacer(b *testing.B) {
	for _, n := range numbers {
		values := fakeSecrets(n)
		text := ciLog(logSize/8, values)
		for _, forms := range []string{"plain", "encoded"} {
			var pairs []string
			for _, s := range secrets.Patterns(sets(values)[forms]) {
				pairs = append(pairs, s, secrets.Replacement)
			}
			r := strings.NewReplacer(pairs...)
			for _, write := range writeSizes {
				b.Run(fmt.Sprintf("secrets=%d/%s/writes=%s", n, forms, write.name), func(b *testing.B) {
					run(b, len(text), func() {
						eachChunk(text, write.size, func(p []byte) { _, _ = r.WriteString(io.Discard, string(p)) })
					})
				})
			}
		}
	}
}

// BenchmarkIndex measures one bytes.Index search for each pattern, for comparison. For
// one secret without encodings this is the least possible work.
func BenchmarkIndex(b *testing.B) {
	for _, n := range numbers {
		values := fakeSecrets(n)
		text := ciLog(max(logSize/n/8, 64<<10), values)
		for _, forms := range []string{"plain", "encoded"} {
			var patterns [][]byte
			for _, s := range secrets.Patterns(sets(values)[forms]) {
				patterns = append(patterns, []byte(s))
			}
			b.Run(fmt.Sprintf("secrets=%d/%s", n, forms), func(b *testing.B) {
				run(b, len(text), func() {
					for _, s := range patterns {
						for rest := text; ; {
							i := bytes.Index(rest, s)
							if i < 0 {
								break
							}
							rest = rest[i+1:]
						}
					}
				})
			})
		}
	}
}

// BenchmarkReference measures the implementation that the tests compare with.
func BenchmarkReference(b *testing.B) {
	values := fakeSecrets(10)
	text := string(ciLog(256<<10, values))
	patterns := secrets.Patterns(sets(values)["encoded"])
	run(b, len(text), func() { _ = reference(patterns, text) })
}

// BenchmarkAttack measures texts and secrets that are constructed to be slow.
func BenchmarkAttack(b *testing.B) {
	const size = 8 << 20
	random := fakeSecrets(1000)
	repeat := func(parts ...string) []byte {
		var buf bytes.Buffer
		for i := 0; buf.Len() < size; i++ {
			buf.WriteString(parts[i%len(parts)])
		}
		return buf.Bytes()[:size]
	}
	encoded := secrets.NewSet(secrets.Config{}, random...)
	var almost, inside []string
	shuffled := secrets.Patterns(encoded)
	rand.New(rand.NewPCG(5, 6)).Shuffle(len(shuffled), func(i, j int) {
		shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
	})
	for _, n := range shuffled {
		almost = append(almost, n[:len(n)-1])
		inside = append(inside, n[1:min(14, len(n))])
	}
	prefix := strings.Repeat("one-long-prefix/", 16)
	var prefixed, nested []string
	for i, v := range random {
		prefixed = append(prefixed, prefix+v)
		nested = append(nested, strings.Repeat("a", 3+i/4)+strings.Repeat("b", i%4))
	}
	// The short secrets keep the automaton in use on text that does not resemble the
	// other secrets for long.
	var noise []string
	for _, n := range shuffled {
		noise = append(noise, "xyz", n[3:min(8, len(n))], n[1:4])
	}
	long := strings.Repeat("a line of a value that has many of them, the same\n", 1300)
	var short []string
	for _, v := range random {
		short = append(short, v[:3])
	}
	for _, tt := range []struct {
		name string
		set  *secrets.Set
		text []byte
	}{
		{"almost secrets", encoded, repeat(almost...)},
		{"filter hits", encoded, repeat(inside...)},
		{"noise", secrets.NewSet(secrets.Config{}, append([]string{"xyzx", "zxyy", "yzx", "xyz"}, random...)...), repeat(noise...)},
		{"a shared prefix", secrets.NewSet(secrets.Config{}, prefixed...), repeat(prefix, prefix+"!", random[0][:5])},
		{"one byte, masked", secrets.NewSet(secrets.Config{}, strings.Repeat("a", 30)), repeat("a")},
		{"one byte, open", secrets.NewSet(secrets.Config{}, strings.Repeat("a", 30)+"b"), repeat("a")},
		{"nested", secrets.NewSet(secrets.Config{}, nested...), repeat("aaaaaaaaaaaaaaaaaaaaaab")},
		{"64 KiB, nearly", secrets.NewSet(secrets.Config{}, long+"!"), repeat(long)},
		{"1000 of three bytes", secrets.NewSet(secrets.Config{}, short...), ciLog(size, short)},
	} {
		for _, write := range writeSizes {
			b.Run(tt.name+"/writes="+write.name, func(b *testing.B) { runMasker(b, tt.set, tt.text, write.size) })
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range numbers {
		for _, kind := range []struct {
			name   string
			values []string
		}{{"any characters", fakeSecrets(n)}, {"letters and digits", fakeTokens(n)}} {
			b.Run(fmt.Sprintf("secrets=%d/%s", n, kind.name), func(b *testing.B) {
				b.ReportAllocs()
				began := cpuTime()
				for b.Loop() {
					secrets.BuildIndex(secrets.NewSet(secrets.Config{}, kind.values...))
				}
				b.ReportMetric(float64((cpuTime()-began).Microseconds())/1e3/float64(b.N), "cpu-ms/op")
			})
		}
	}
	b.Run("automaton, if needed/secrets=1000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			set := secrets.NewSet(secrets.Config{}, fakeSecrets(1000)...)
			secrets.BuildIndex(set)
			b.StartTimer()
			b.ReportMetric(float64(secrets.BuildAutomaton(set)), "states")
		}
	})
	values := fakeSecrets(1000)
	b.Run("one by one/secrets=1000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			set := secrets.NewSet(secrets.Config{})
			for _, v := range values {
				set.Add(v)
				secrets.BuildIndex(set)
			}
		}
	})
}
