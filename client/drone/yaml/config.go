package yaml

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// configuration is a configuration file: its pipelines and secrets in their order. Documents of
// other kinds, such as signatures, are ignored.
type configuration struct {
	pipelines []*pipeline
	secrets   []Secret
}

// Secret is a document of kind secret: an encrypted value, or the place of a value in an
// external system.
type Secret struct {
	Name string
	// Data is the encrypted value in base64, see [Input], SecretKey.
	Data string
	// Path and Key name a value of an external system.
	Path string
	Key  string
}

// decrypt returns the value of Data. The key has 16, 24 or 32 bytes.
func (s Secret) decrypt(key string) (string, error) {
	sealed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s.Data))
	if err != nil {
		return "", fmt.Errorf("decrypt secret %q: its data is not base64", s.Name)
	}
	block, err := aes.NewCipher([]byte(key))
	if err != nil {
		return "", fmt.Errorf("decrypt secret %q: the secret of the repository is not a valid key", s.Name)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return "", fmt.Errorf("decrypt secret %q: %w", s.Name, err)
	}
	if len(sealed) < gcm.NonceSize() {
		return "", fmt.Errorf("decrypt secret %q: its data is too short", s.Name)
	}
	plain, err := gcm.Open(nil, sealed[:gcm.NonceSize()], sealed[gcm.NonceSize():], nil)
	if err != nil {
		return "", fmt.Errorf("decrypt secret %q: it was not encrypted for this repository", s.Name)
	}
	return string(plain), nil
}

// maxDocuments is the number of documents that a file may have.
const maxDocuments = 1000

// parse reads a configuration file. Its errors name the line, the column and the member. The error
// of one pipeline is returned by find, so that the others can run.
func parse(data []byte) (*configuration, error) {
	documents, err := readDocuments(data)
	if err != nil {
		return nil, err
	}
	if len(documents) > maxDocuments {
		return nil, fmt.Errorf("the file has %d documents: at most %d are read", len(documents), maxDocuments)
	}
	c := &configuration{}
	names := map[string]*pipeline{}
	for _, document := range documents {
		kind, err := document.kindOf()
		if err != nil {
			return nil, err
		}
		switch kind {
		case "pipeline":
			p, err := readPipeline(document)
			if err != nil {
				return nil, err
			}
			if first := names[p.Name]; first != nil {
				first.problem = document.errorf("the name %q is the name of an earlier pipeline: rename one of them", p.Name)
				continue
			}
			names[p.Name] = p
			c.pipelines = append(c.pipelines, p)
		case "secret":
			s, err := readSecret(document)
			if err != nil {
				return nil, err
			}
			c.secrets = append(c.secrets, s)
		}
	}
	for _, p := range c.pipelines {
		p.secrets = c.secrets
	}
	return c, nil
}

// kindOf returns the kind of a document. Documents without a kind, or that are no maps, have
// none.
func (v value) kindOf() (string, error) {
	if !v.isMap() {
		return "", nil
	}
	return v.member("kind")
}

func readSecret(v value) (s Secret, err error) {
	var name string
	err = v.read(map[string]func(value) error{
		"kind": nil, "type": nil, "version": nil,
		"name": set(&s.Name, value.text),
		"data": set(&s.Data, value.text),
		"get": func(v value) error {
			return v.read(map[string]func(value) error{
				"path": set(&s.Path, value.text), "key": set(&s.Key, value.text), "name": set(&name, value.text),
			})
		},
	})
	if s.Key == "" {
		s.Key = name
	}
	switch {
	case err != nil:
		return s, err
	case s.Name == "":
		return s, v.errorf("the secret has no name")
	case s.Data == "" && s.Path == "" && s.Key == "":
		return s, v.errorf("the secret %q has neither data nor get", s.Name)
	}
	return s, nil
}

// find returns the pipeline with a name. An empty name means "default". It returns an error
// for a pipeline of another type than docker and exec, and for one that is not valid.
func (c *configuration) find(name string) (*pipeline, error) {
	if name == "" {
		name = defaultName
	}
	var names []string
	for _, p := range c.pipelines {
		if p.Name == name {
			return p, p.problem
		}
		names = append(names, p.Name)
	}
	if len(names) == 0 {
		return nil, errors.New("the file has no pipeline: a document with \"kind: pipeline\" is one")
	}
	return nil, fmt.Errorf("the file has no pipeline %q, only %.500q", name, names)
}
