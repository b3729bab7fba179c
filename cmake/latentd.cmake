# What every target shares: warnings as errors, and floating point that means
# what the source says.  -ffp-contract=off is part of promise 3 (docs/design.md):
# a fused multiply-add happens where it is written, and nowhere else.
add_library(latentd_flags INTERFACE)
target_compile_features(latentd_flags INTERFACE c_std_11)
target_include_directories(latentd_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(latentd_flags INTERFACE _GNU_SOURCE LATENTD_VERSION="${PROJECT_VERSION}")
target_compile_options(latentd_flags INTERFACE
	-Wall -Wextra -Wshadow -Wstrict-prototypes -Wvla -Werror -ffp-contract=off -fno-math-errno)
target_link_libraries(latentd_flags INTERFACE m)
if(LATENTD_SANITIZE)
	target_compile_options(latentd_flags INTERFACE
		-fsanitize=${LATENTD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
	target_link_options(latentd_flags INTERFACE -fsanitize=${LATENTD_SANITIZE})
endif()

# latentd_module(NAME [USES module...] [LINKS library...] SOURCES file...)
# One static library per folder.  USES is the folder's whole right to include:
# tests/layers.cmake holds every #include "folder/..." against it.
function(latentd_module name)
	cmake_parse_arguments(M "" "" "USES;LINKS;SOURCES" ${ARGN})
	if(NOT M_SOURCES)
		add_library(${name} INTERFACE)
		return()
	endif()
	add_library(${name} STATIC ${M_SOURCES})
	target_link_libraries(${name} PUBLIC latentd_flags ${M_USES} ${M_LINKS})
	set_property(GLOBAL APPEND PROPERTY LATENTD_LAYERS ${name})
	set_property(GLOBAL PROPERTY LATENTD_USES_${name} "${M_USES}")
endfunction()

# latentd_test(FILE USES module... [LABELS label...] [ARGS arg...]): called in tests/<folder>/,
# <name>_test.c becomes the ctest <folder>/<name>.  A test that exits with 77 is reported
# as skipped.
function(latentd_test file)
	cmake_parse_arguments(T "" "" "USES;LABELS;ARGS" ${ARGN})
	cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder)
	string(REGEX REPLACE "_test\\.c$" "" test_name ${file})
	set(target test_${folder}_${test_name})
	add_executable(${target} ${file})
	target_link_libraries(${target} PRIVATE ${T_USES} PkgConfig::cmocka)
	target_compile_definitions(${target} PRIVATE TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
	add_test(NAME ${folder}/${test_name} COMMAND ${target} ${T_ARGS})
	set_tests_properties(${folder}/${test_name} PROPERTIES TIMEOUT ${LATENTD_TEST_SECONDS} LABELS "${T_LABELS}"
		SKIP_RETURN_CODE 77 ENVIRONMENT "OMP_WAIT_POLICY=passive")
endfunction()
