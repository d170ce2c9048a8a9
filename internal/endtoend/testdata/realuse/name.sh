# Gives the build of a project its name.  . ci/name.sh PROJECT
BUILD_NAME=$1-$(git rev-parse --short=12 HEAD)
