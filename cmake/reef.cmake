# Compile options live on one interface target that every module links privately.
add_library(reef_options INTERFACE)
target_compile_definitions(reef_options INTERFACE _POSIX_C_SOURCE=200809L
    REEF_VERSION_TEXT="${PROJECT_VERSION}")
target_compile_options(reef_options INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes
    -Wmissing-prototypes -Werror=implicit-function-declaration -Wformat=2 -Wundef -Wcast-align
    $<$<C_COMPILER_ID:GNU>:-Wvla-larger-than=0>
    $<$<BOOL:${REEF_WERROR}>:-Werror>)
# Asserts stay on in every build: CMake's release flavours would define NDEBUG.
target_compile_options(reef_options INTERFACE -UNDEBUG)
if(REEF_FAIL_POINTS)
    target_compile_definitions(reef_options INTERFACE REEF_FAIL_POINTS)
endif()
if(REEF_SANITIZE)
    target_compile_options(reef_options INTERFACE
        -fsanitize=${REEF_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(reef_options INTERFACE -fsanitize=${REEF_SANITIZE})
    # A hundred and fifty programs with these libraries in each: this linker takes half the time.
    include(CheckLinkerFlag)
    check_linker_flag(C -fuse-ld=gold REEF_HAS_GOLD)
    if(REEF_HAS_GOLD)
        target_link_options(reef_options INTERFACE -fuse-ld=gold)
    endif()
    # Tests start programs thousands of times, and a fixed address spares each start its relocations.
    if(REEF_SANITIZE MATCHES "address" AND NOT REEF_FUZZ)
        target_link_options(reef_options INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
    endif()
endif()

# What inner loops are not checked for: undefined behaviour, and addresses that they read. Both checks together take half
# of the time of a program that learns. The loops' own tests link copies of them with all checks (checked_kernels,
# checked_context and checked_loops in tests/unit). What loops write is checked everywhere.
set(REEF_UNCHECKED "")
if(REEF_SANITIZE MATCHES "undefined")
    set(REEF_UNCHECKED -fno-sanitize=undefined)
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
        list(APPEND REEF_UNCHECKED --param=asan-instrument-reads=0)
    endif()
endif()

# How much inner loops are optimised where everything else may not be. Less under a fuzzer: clang takes a minute for one of
# the vector kernels, whose checks it unrolls with the loops.
set(REEF_LOOPS -O3)
set(REEF_LOOPS_LIGHT -O2)
if(REEF_FUZZ)
    set(REEF_LOOPS -O1)
    set(REEF_LOOPS_LIGHT -O1)
endif()

# A module, for the modules after it and for libreef; nothing of it is installed by itself.
#
# reef_library(module FOLDERS a b SOURCES a.c a/b.c PUBLIC reef::before PRIVATE lib)
#
# Other modules see include/ and nothing else: the module's reef_*.h. FOLDERS are its own subfolders,
# whose private headers its sources (and, through reef::inside, tests) include by their unique names.
add_library(reef_inside INTERFACE)
add_library(reef::inside ALIAS reef_inside)
function(reef_library module)
    cmake_parse_arguments(ARG "" "" "FOLDERS;SOURCES;PUBLIC;PRIVATE" ${ARGN})
    add_library(reef_${module} STATIC ${ARG_SOURCES})
    add_library(reef::${module} ALIAS reef_${module})
    set(inside ${CMAKE_CURRENT_SOURCE_DIR})
    foreach(folder IN LISTS ARG_FOLDERS)
        list(APPEND inside ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
    endforeach()
    target_include_directories(reef_${module} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include PRIVATE ${inside})
    target_include_directories(reef_inside INTERFACE ${inside})
    target_link_libraries(reef_${module} PUBLIC ${ARG_PUBLIC} PRIVATE reef_options ${ARG_PRIVATE})
endfunction()

# reef_test(test_module_unit module/test_unit.c LABELS unit LIBS reef::module [SOURCES helper.c]): one cmocka program,
# one CTest entry. A test sees its module's private headers. OPTIMISED: it computes much by itself.
# Real data lies in $REEF_DATA_DIR, else in shared/data beside the sources; tests that want it are skipped
# without.
get_filename_component(REEF_DATA_BESIDE ${CMAKE_CURRENT_SOURCE_DIR}/../shared/data ABSOLUTE)
function(reef_test name source)
    cmake_parse_arguments(ARG "OPTIMISED" "TIMEOUT" "SOURCES;LABELS;LIBS" ${ARGN})
    add_executable(${name} ${source} ${ARG_SOURCES})
    target_include_directories(${name} PRIVATE ${REEF_TESTS_DIR}/support ${REEF_TESTS_DIR}/reference)
    target_link_libraries(${name} PRIVATE reef_options reef::inside ${ARG_LIBS} PkgConfig::CMOCKA m)
    # Under sanitizers most of a test's time is its compilation: what it calls is optimised, it is not.
    if(REEF_SANITIZE AND NOT ARG_OPTIMISED)
        target_compile_options(${name} PRIVATE -O0)
    endif()
    add_test(NAME ${name} COMMAND ${name})
    if(ARG_TIMEOUT) # what may take long begins early: it is not left to be waited for alone at the end
        set_tests_properties(${name} PROPERTIES COST ${ARG_TIMEOUT})
    else()
        set(ARG_TIMEOUT 300)
    endif()
    if(REEF_SANITIZE MATCHES "thread") # which slows memories down by ten
        math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
    if(NOT DEFINED ENV{REEF_DATA_DIR} AND EXISTS ${REEF_DATA_BESIDE})
        set_tests_properties(${name} PROPERTIES ENVIRONMENT "REEF_DATA_DIR=${REEF_DATA_BESIDE}")
    endif()
endfunction()

# reef_test_starts_many(test ...): tests that start programs hundreds of times. Half of a start under the address
# sanitizer is its search for leaks at the end; test_tools_commands, test_daemon_run and the unit tests do that search.
function(reef_test_starts_many)
    set_property(TEST ${ARGN} APPEND PROPERTY ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
endfunction()

# reef_test_ranks(test_x x.c LABELS unit RANKS 1 2 3 LIBS reef::module): a program that mpirun starts once for each rank;
# one CTest entry a number of ranks. None in a build without MPI.
function(reef_test_ranks name source)
    cmake_parse_arguments(ARG "" "" "RANKS;LABELS;LIBS" ${ARGN})
    if(NOT REEF_MPI_FOUND OR NOT MPIEXEC_EXECUTABLE)
        return()
    endif()
    add_executable(${name} ${source})
    target_include_directories(${name} PRIVATE ${REEF_TESTS_DIR}/support ${REEF_TESTS_DIR}/reference)
    target_link_libraries(${name} PRIVATE reef_options reef::inside ${ARG_LIBS} reef::mpi PkgConfig::CMOCKA m)
    foreach(ranks IN LISTS ARG_RANKS)
        add_test(NAME ${name}_${ranks} COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe --allow-run-as-root
            --bind-to none -n ${ranks} $<TARGET_FILE:${name}>)
        # Leaks of MPI itself, and the order of its locks, are none of ours. Begins early: as many processors as ranks
        # are never free before the end.
        set_tests_properties(${name}_${ranks} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 600 COST 930
            ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0;TSAN_OPTIONS=detect_deadlocks=0")
    endforeach()
endfunction()

# reef_test_packages(test ...): tests that use programs or modules which the build does not need. tools/test installs
# them; tools/test --quick leaves these tests out.
function(reef_test_packages)
    set_property(TEST ${ARGN} APPEND PROPERTY LABELS packages)
endfunction()
