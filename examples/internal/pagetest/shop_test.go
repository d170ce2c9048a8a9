package pagetest

// shop has parallel stages, a matrix with a cell that fails, skips, outputs and coloured logs.
const shop = `
pipeline:
  identifier: shop
  name: Shop
  variables:
    - {name: version, type: String, value: <+input>.default(1.4)}
  stages:
    - stage:
        identifier: prepare
        name: Prepare
        type: CI
        spec:
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step:
                  identifier: read_version
                  name: Read version
                  type: Run
                  spec:
                    command: |-
                      echo "release <+pipeline.variables.version>"
                      export TAG=v<+pipeline.variables.version>.0
                    outputVariables: [{name: TAG}]
    - parallel:
        - stage:
            identifier: lint
            name: Lint
            type: CI
            spec:
              runtime: {type: Docker, spec: {}}
              execution:
                steps:
                  - step: {identifier: format, name: Format, type: Run, spec: {command: echo "42 files are formatted"}}
                  - step: {identifier: vet, name: Vet, type: Run, spec: {command: echo "no findings"}}
        - stage:
            identifier: test
            name: Test
            type: CI
            strategy:
              matrix:
                os: [linux, windows]
                go: ["1.25", "1.26"]
                nodeName: <+matrix.os>_<+matrix.go>
            spec:
              runtime: {type: Docker, spec: {}}
              execution:
                steps:
                  - step:
                      identifier: unit
                      name: Unit tests
                      type: Run
                      spec:
                        command: |-
                          echo "::group::Download"
                          for m in chi zerolog testify jose; do printf '\033[2mgo: downloading %s\033[0m\n' $m; done
                          echo "::endgroup::"
                          for p in cart checkout invoice mail search stock; do printf '\033[32mok\033[0m    shop/%s\t0.0%ss\n' $p 4; done
                          if [ "<+matrix.os>_<+matrix.go>" = windows_1.26 ]; then
                            printf '\033[31;1m--- FAIL: TestPriceHasTwoDigits (0.01s)\033[0m\n'
                            printf '    price_test.go:31: \033[33merror\033[0m: got 4,5, want 4.50\n'
                            printf '\033[31mFAIL\033[0m  shop/price\t0.03s\n'
                            exit 1
                          fi
                          printf '\033[32mok\033[0m    shop/price\t0.03s\n'
                  - step:
                      identifier: report
                      name: Report
                      type: Run
                      when: {stageStatus: Failure}
                      spec: {command: echo "the report is written"}
    - stage:
        identifier: release
        name: Release
        type: CI
        when: {pipelineStatus: Success, condition: <+codebase.branch> == "main"}
        spec:
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: publish, name: Publish, type: Run, spec: {command: echo published}}
`
